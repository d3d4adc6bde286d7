------------------------------------------------------- MODULE slots -------------------------------------------------------
(* Slots as leases: an entry "lease id -> expiry" is all that the store keeps, and the slots in use are the entries that  *)
(* have not expired: counted, never kept.                                                                                 *)
(*                                                                                                                        *)
(*    new --ask--> asking --granted--> holding --end--> ended                     any of them --crash--> dead             *)
(*                   |                  |    ^                                                                            *)
(*                   |                  renew (the keeper)                                                                *)
(*                   '--refused, or given up and released--> ended                                                        *)
(*                                                                                                                        *)
(* What can go wrong: a holder dies between any two steps. A message is never taken off the wire: it may arrive late,     *)
(* never, again, and out of order. An answer may be lost, or read long after it was given. The store's clock is ahead of  *)
(* true time and may step back, once; clients count with a clock of their own that only grows.                            *)
(*                                                                                                                        *)
(* A lease trusts its slot for as long as the store said it would live, counted from before the take was first sent, or   *)
(* for a whole TTL from before the last acknowledged renewal was sent.                                                    *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Leases, Capacity, TTL, Horizon, Ahead

VARIABLES
    steady,      \* true time, which clients count with
    stepped,     \* whether the store's clock has stepped back to it
    entries,     \* what the store keeps: lease -> when it expires, 0 if there is none
    wire,        \* every message that was ever sent
    lease,       \* what each client knows
    revived      \* history: whether a renewal ever succeeded on a lapsed lease

vars == <<steady, stepped, entries, wire, lease, revived>>

now == IF stepped THEN steady ELSE steady + Ahead

Live == {l \in Leases : entries[l] > now}
InUse == Cardinality(Live)

Nothing == [is |-> "nothing"]

Init ==
    /\ steady = 0
    /\ stepped = FALSE
    /\ entries = [l \in Leases |-> 0]
    /\ wire = {}
    /\ lease = [l \in Leases |-> [at |-> "new", sent |-> 0, until |-> 0, answer |-> Nothing]]
    /\ revived = FALSE

----------------------------------------------------------------------------------------------------------------------------
(* Clients.                                                                                                               *)

Send(kind, l, seen) == wire' = wire \cup {[kind |-> kind, id |-> l, seen |-> seen]}

Becomes(l, at) == lease' = [lease EXCEPT ![l].at = at, ![l].answer = Nothing]

Believes(l) == lease[l].at \in {"holding", "renewing"} /\ lease[l].until > steady

Ask(l) ==
    /\ lease[l].at = "new"
    /\ lease' = [lease EXCEPT ![l].at = "asking", ![l].sent = steady]
    /\ Send("take", l, 0)

HearGranted(l) ==
    /\ lease[l].at = "asking" /\ lease[l].answer.is = "granted"
    /\ lease' = [lease EXCEPT ![l].at = "holding",
                              ![l].until = lease[l].sent + lease[l].answer.lives,
                              ![l].answer = Nothing]
    /\ UNCHANGED wire

HearRefused(l) ==
    /\ lease[l].at = "asking" /\ lease[l].answer.is = "refused"
    /\ Becomes(l, "ended")
    /\ UNCHANGED wire

Renew(l) ==
    /\ lease[l].at = "holding" /\ lease[l].until > steady
    /\ lease' = [lease EXCEPT ![l].at = "renewing", ![l].sent = steady]
    /\ Send("renew", l, 0)

HearRenewed(l) ==
    /\ lease[l].at = "renewing" /\ lease[l].answer.is = "renewed"
    /\ lease' = [lease EXCEPT ![l].at = "holding", ![l].until = lease[l].sent + TTL, ![l].answer = Nothing]
    /\ UNCHANGED wire

NoAnswerToRenewal(l) ==
    /\ lease[l].at = "renewing"
    /\ Becomes(l, "holding")
    /\ UNCHANGED wire

(* The end of a lease; also of one whose take has no answer, and of one that hears that it is gone. *)
End(l) ==
    /\ lease[l].at \in {"asking", "holding", "renewing"}
    /\ Becomes(l, "ended")
    /\ Send("release", l, 0)

Crash(l) ==
    /\ lease[l].at \in {"asking", "holding", "renewing"}
    /\ Becomes(l, "dead")
    /\ UNCHANGED wire

----------------------------------------------------------------------------------------------------------------------------
(* The store. Each message is decided in one step; whoever still waits for it may hear the answer, or not.                *)

Answer(l, waiting, answer) ==
    IF lease[l].at = waiting /\ lease[l].answer = Nothing
    THEN lease' = lease \/ lease' = [lease EXCEPT ![l].answer = answer]
    ELSE lease' = lease

(* A granted take is entered, and what has lapsed is dropped, by anybody's take. *)
Entered(l) == [k \in Leases |-> IF k = l THEN now + TTL ELSE IF entries[k] > now THEN entries[k] ELSE 0]

DecideTake(m) ==
    LET l == m.id IN
    IF entries[l] > now
    THEN UNCHANGED <<entries, revived>> /\ Answer(l, "asking", [is |-> "granted", lives |-> entries[l] - now])
    ELSE IF InUse < Capacity
    THEN entries' = Entered(l) /\ UNCHANGED revived /\ Answer(l, "asking", [is |-> "granted", lives |-> TTL])
    ELSE UNCHANGED <<entries, revived>> /\ Answer(l, "asking", [is |-> "refused"])

Renewable(l) == entries[l] > now

DecideRenew(m) ==
    LET l == m.id IN
    IF Renewable(l)
    THEN /\ entries' = [entries EXCEPT ![l] = IF @ > now + TTL THEN @ ELSE now + TTL]
         /\ revived' = (revived \/ entries[l] <= now)
         /\ Answer(l, "renewing", [is |-> "renewed"])
    ELSE UNCHANGED <<entries, revived, lease>>

Released(l) == [entries EXCEPT ![l] = 0]

DecideRelease(m) == entries' = Released(m.id) /\ UNCHANGED <<revived, lease>>

StillAsSeen(m) == entries[m.id] = m.seen /\ m.seen <= now

DecideReap(m) == StillAsSeen(m) /\ entries' = [entries EXCEPT ![m.id] = 0] /\ UNCHANGED <<revived, lease>>

Decide(m) ==
    CASE m.kind = "take" -> DecideTake(m)
      [] m.kind = "renew" -> DecideRenew(m)
      [] m.kind = "release" -> DecideRelease(m)
      [] m.kind = "reap" -> DecideReap(m)

(* The reconciler reads, and some time later asks for what it saw lapsed to be tidied away. *)
See(l) ==
    /\ entries[l] # 0 /\ entries[l] <= now
    /\ Send("reap", l, entries[l])
    /\ UNCHANGED lease

Tick == steady < Horizon /\ steady' = steady + 1 /\ UNCHANGED stepped

StepBack == ~stepped /\ stepped' = TRUE /\ UNCHANGED steady

Step(l) ==
    \/ Ask(l) \/ HearGranted(l) \/ HearRefused(l)
    \/ Renew(l) \/ HearRenewed(l) \/ NoAnswerToRenewal(l)
    \/ End(l) \/ Crash(l)
    \/ See(l)

Next ==
    \/ (Tick \/ StepBack) /\ UNCHANGED <<entries, revived, wire, lease>>
    \/ \E m \in wire : Decide(m) /\ UNCHANGED <<steady, stepped, wire>>
    \/ \E l \in Leases : Step(l) /\ UNCHANGED <<steady, stepped, entries, revived>>

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------------------------------------------------------
(* What must hold.                                                                                                        *)

LiveNeverOverCapacity == Cardinality(Live) <= Capacity

(* What refuses others is live: a dead holder's slot is free at its expiry, whoever reaps or not. *)
FreeAtExpiry == InUse <= Cardinality(Live)

(* What is live refuses others: whatever is released or reaped how often, in any order, no slot comes back twice. *)
NothingReturnedTwice == InUse >= Cardinality(Live)

LapsedNeverRenewed == ~revived

(* Who believes that it holds a slot does hold one, so no more than capacity ever work. *)
BelieversHold == \A l \in Leases : Believes(l) => l \in Live

Symmetry == Permutations(Leases)
============================================================================================================================
