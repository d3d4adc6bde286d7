"""Bugs in the stores: where the core's answer is lost in translation."""

from typing import Final

from proof.mutants.mutant import Mutant

STORES: Final = (
    Mutant(
        "memory: only grants are kept",
        "the books: what a refusal put right, or a release did, is not stored",
        "stores/memory.py",
        "                self._buckets.update(changed)\n",
        "                if hasattr(outcome, 'turn_ns'):\n                    self._buckets.update(changed)\n",
    ),
    Mutant(
        "memory: now is read once for ever",
        "2: time stands still",
        "stores/memory.py",
        "            now_ns = self._clock.now_ns()\n            outcomes = []\n",
        "            now_ns = self.__dict__.setdefault('_now_ns', self._clock.now_ns())\n            outcomes = []\n",
    ),
    Mutant(
        "memory: a version is not looked at",
        "6: who changes what somebody else has changed overwrites it",
        "stores/memory.py",
        "                if not holds(write.expect, self._documents.get(key_of(write))):\n",
        "                if write is None:\n",
    ),
    Mutant(
        "sqlite: the interval is not stored",
        "1: a rate is read back in another interval",
        "stores/sqlite/state.py",
        "            rates[name] = RateState(int(full_at), int(interval))\n",
        "            rates[name] = RateState(int(full_at), int(interval) + 1)\n",
    ),
    Mutant(
        "sqlite: one entry of a lease is stored",
        "4: of several holders, only the first is remembered",
        "stores/sqlite/state.py",
        "for entry, at in zip(fields[1::2], fields[2::2], strict=True)}",
        "for entry, at in zip(fields[1:2], fields[2:3], strict=True)}",
    ),
    Mutant(
        "sqlite: the pause is forgotten",
        "1: a paused bucket grants",
        "stores/sqlite/state.py",
        "    if bucket.paused_until_ns or bucket.paused_total_ns:\n",
        "    if bucket.paused_until_ns < 0:\n",
    ),
    Mutant(
        "sqlite: a changed bucket is not saved",
        "1: only the first take ever on a bucket is stored",
        "stores/sqlite/transaction.py",
        "            elif text != stored[1]:\n",
        "            elif text == stored[1]:\n",
    ),
    Mutant(
        "sqlite: of two buckets one is saved",
        "6: a take over several buckets is charged to one",
        "stores/sqlite/transaction.py",
        "        for key, bucket in self._changed.items():\n",
        "        for key, bucket in list(self._changed.items())[:1]:\n",
    ),
    Mutant(
        "sqlite: busy buckets are forgotten",
        "1: tidying away forgets what was taken",
        "stores/sqlite/transaction.py",
        "            if idle(bucket, self.now_ns - IDLE_FOR_NS):\n",
        "            if bucket is not None:\n",
    ),
    Mutant(
        "sqlite: half of the documents are written",
        "6: a write that must be all or nothing is half done",
        "stores/sqlite/transaction.py",
        "                return Mismatch(key_of(write))\n        for write in writes:\n",
        "                break\n        for write in writes:\n",
    ),
)
