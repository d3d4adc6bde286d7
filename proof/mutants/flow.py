"""Bugs in the flows: what takes several steps, and may be interrupted between any two."""

from typing import Final

from proof.mutants.mutant import Mutant

FLOW: Final = (
    Mutant(
        "undo forgotten in a cascade",
        "6: a refusal by the parent leaves the child charged",
        "flow/attempt.py",
        "    undone = await _undo(client, lease, hold)\n    if isinstance(outcome, Clash):",
        "    undone = True\n    if isinstance(outcome, Clash):",
    ),
    Mutant(
        "unknown treated as refused",
        "4: a take whose reply was lost leaves a slot that nobody owns",
        "flow/attempt.py",
        "    if isinstance(answer, Unknown):\n        return\n    for number",
        "    for number",
    ),
    Mutant(
        "cancelled in mid-air",
        "4: a caller that is cancelled while its take is on the way leaves a slot behind",
        "flow/attempt.py",
        "    return await client.scope.finish(_attempt(client, lease, hold, wait_ns), "
        "undo=lambda: _undo(client, lease, hold))\n",
        "    return await _attempt(client, lease, hold, wait_ns)\n",
    ),
    Mutant(
        "a cancelled take is kept",
        "6: what was granted to somebody who is gone is not given back",
        "flow/attempt.py",
        "_attempt(client, lease, hold, wait_ns), undo=lambda: _undo(client, lease, hold))\n",
        "_attempt(client, lease, hold, wait_ns))\n",
    ),
    Mutant(
        "a rate is tried again",
        "1: a take of a rate whose reply was lost is charged twice",
        "flow/attempt.py",
        "    repeatable = any(part.slots for part in parts)\n",
        "    repeatable = True\n",
    ),
    Mutant(
        "half of a take is enough",
        "6: of several buckets, the last refuses and the others are taken",
        "flow/attempt.py",
        "        if not isinstance(outcome, Granted):\n            return outcome\n        granted[number] = outcome\n",
        "        if not granted and not isinstance(outcome, Granted):\n            return outcome\n"
        "        if isinstance(outcome, Granted):\n            granted[number] = outcome\n",
    ),
    Mutant(
        "the first answer counts",
        "6: of takes sent side by side, a refusal is overlooked",
        "flow/attempt.py",
        "    return min(refused, key=_weight) if refused else _together(granted)\n",
        "    return min(refused, key=_weight) if not granted else _together(granted)\n",
    ),
    Mutant(
        "doubtful rates are given back",
        "1: what may never have been taken is given back",
        "flow/lease.py",
        "            elif sent is Sent.GRANTED:\n                turn",
        "            elif sent is not Sent.NOT_YET:\n                turn",
    ),
    Mutant(
        "given back without having been taken",
        "1: the undoing of a take in doubt gives back its rates though its slots were not there",
        "flow/lease.py",
        "only_if_held=sent is Sent.DOUBTFUL",
        "only_if_held=False",
    ),
    Mutant(
        "trusted from the reply",
        "4: a lease is believed for a TTL from when the renewal was answered, not sent",
        "flow/keeper.py",
        "                lease.trust_from(steady_ns, wall_ns)\n",
        "                lease.trust_from(clock.steady_ns(), clock.now_ns())\n",
    ),
    Mutant(
        "the keeper keeps the lost",
        "4: a lease that the store no longer knows is believed to be held",
        "flow/keeper.py",
        "            if isinstance(answer, Gone):\n"
        '                lease.lose("it lapsed before it was renewed")\n'
        "            kept[id(lease)] = kept.get(id(lease), True) and isinstance(answer, Renewed)\n",
        "            kept[id(lease)] = kept.get(id(lease), True) and isinstance(answer, Renewed | Gone)\n",
    ),
    Mutant(
        "the keeper comes late",
        "4: renewals are sent when the lease lapses, not after a third of its time",
        "flow/lease.py",
        "        return self._trusted_steady_ns - self._ttl_ns + self._ttl_ns // 3\n",
        "        return self._trusted_steady_ns\n",
    ),
    Mutant(
        "never lost",
        "4: a holder that was asleep for longer than its TTL goes on as if it held the slot",
        "flow/lease.py",
        "        return self._lost or clock.steady_ns() >= self._trusted_steady_ns or clock.now_ns() >= "
        "self._trusted_wall_ns\n",
        "        return self._lost\n",
    ),
    Mutant(
        "ends are not kept",
        "4: the end of a lease that could not be sent at once is forgotten",
        "flow/keeper.py",
        "            self._home(work)\n        else:\n            self._start()\n",
        "            self._home(work)\n        else:\n            self._ends.pop(id(work), None)\n",
    ),
    Mutant(
        "a give-back is sent twice",
        "1: a give-back whose reply was lost is sent again",
        "flow/ending.py",
        "            owes = isinstance(request, Settle) and request.only_owes\n",
        "            owes = isinstance(request, Settle)\n",
    ),
    Mutant(
        "a give-back stays on the list",
        "1: the keeper sends a give-back again that may have been applied",
        "flow/ending.py",
        "                debits = tuple(delta for delta in deltas if delta.tokens > 0)\n",
        "                debits = deltas\n",
    ),
    Mutant(
        "settled at what was taken",
        "1: what was settled at the end is not what is owed",
        "flow/account.py",
        "                    delta = Delta(charge.name, total - taken, charge.interval_ns)\n",
        "                    delta = Delta(charge.name, total, charge.interval_ns)\n",
    ),
    Mutant(
        "ancestors are not settled",
        "1: the parent keeps what the child was given back, and is not charged what it owes",
        "flow/account.py",
        "        for part in self._plan.parts:\n            for charge in part.rates:\n                taken",
        "        for part in self._plan.parts[:1]:\n            for charge in part.rates:\n                taken",
    ),
    Mutant(
        "more is not the lease's",
        "1: what was taken in addition is not counted when the lease is settled",
        "flow/lease.py",
        "        self.holds.append(hold)\n        self.account.add(hold.parts)\n",
        "        self.holds.append(hold)\n",
    ),
    Mutant(
        "a settlement is lost with its slots",
        "1: a lease that has lapsed is not settled",
        "flow/ending.py",
        "            case Gone() if step.deltas and not step.only_if_held:\n",
        "            case Gone() if step.deltas and step.only_if_held:\n",
    ),
    Mutant(
        "a pause is not looked for",
        "1: who waits for its turn starts although the bucket was paused meanwhile",
        "flow/waiting.py",
        "        if wait_ns <= 0:\n            return None\n",
        "        return None\n",
    ),
    Mutant(
        "a turn is kept by who gave up",
        "5: a wait that ends in a denial has taken all the same",
        "flow/waiting.py",
        "        if not came:\n            await finish_end",
        "        if came:\n            await finish_end",
    ),
    Mutant(
        "cache that admits",
        "1: a lowered limit never reaches those who have read the old one",
        "flow/cache.py",
        "        if found is None or found[0] <= self._clock.steady_ns():\n",
        "        if found is None:\n",
    ),
    Mutant(
        "parents are not asked",
        "6: a take does not count against its ancestors",
        "flow/resolving.py",
        "if record is not None and record.cascade}",
        "if record is not None and not record.cascade}",
    ),
    Mutant(
        "an absent store admits",
        "1: while the store is unavailable everybody is let through, though that was not asked for",
        "flow/acquire.py",
        "        if not client.settings.fail_open:\n            raise\n",
        "",
    ),
    Mutant(
        "an id is used again after it was undone",
        "4: a late copy of an undoing frees what the next try has taken",
        "flow/waiting.py",
        "    lease.replan(plan, new_lease_id(client) if lease.holds[0].undone else lease.id)\n",
        "    lease.replan(plan, lease.id)\n",
    ),
    Mutant(
        "the next in line is not told",
        "9: whoever is next waits although it could go",
        "flow/line.py",
        "            elif was_first:\n                line.places[0].gate.set()\n",
        "",
    ),
)
