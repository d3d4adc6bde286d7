----------------------------------------------------- MODULE two_items -----------------------------------------------------
(* All or nothing over two items of a store that has no transactions.                                                     *)
(*                                                                                                                        *)
(* The first item holds slots and a rate, the second a rate alone. A take asks the first, then the second; a refusal of   *)
(* the second undoes the first. Nothing refills here, so what a rate has spent is all that was taken and not given back;  *)
(* others may have spent one of the second rate before.                                                                   *)
(*                                                                                                                        *)
(*    new --> first --granted--> second --granted--> working --> leaving --> ended                                        *)
(*             |                   |                   (or cancelled: both are undone)                                    *)
(*             |                   '--refused, or no answer--> releasing --> returning ... --> denied | unanswered        *)
(*             '--refused--> denied           no answer--> releasing                                                      *)
(*                                                                                                                        *)
(* What carries a lease id is conditional on it, so it may be repeated and may arrive any number of times, late too. What *)
(* only changes a rate arrives at most once, and is neither repeated nor undone while its outcome is unknown: a charge    *)
(* that may not be there is never given back. Answers may be lost; a client may die between any two steps; a slot may     *)
(* lapse at any time, and its holder's clock tells it so.                                                                 *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS Clients, Slots, FirstRate, SecondRate

VARIABLES
    held,        \* the first item: whose slots are entered
    spent,       \* both items: tokens taken and not given back
    wire,        \* messages on their way; those that are conditional on a lease id stay there
    client,      \* what each client knows
    charged,     \* history: what each client's messages did to each rate
    lost,        \* whose slot has lapsed; the holder's own clock says so
    late,        \* history: who had a take applied that it had stopped waiting for
    started      \* history: who ever began to work

vars == <<held, spent, wire, client, charged, lost, late, started>>

Items == {1, 2}
Rate == <<FirstRate, SecondRate>>

Init ==
    /\ held = {}
    /\ spent \in {<<0, others>> : others \in 0..1}
    /\ wire = {}
    /\ client = [c \in Clients |-> [at |-> "new", waits |-> FALSE, answer |-> "none", refused |-> FALSE,
                                    known |-> FALSE, both |-> FALSE, doubted |-> FALSE]]
    /\ charged = [c \in Clients |-> [i \in Items |-> 0]]
    /\ lost = {}
    /\ late = {}
    /\ started = {}

----------------------------------------------------------------------------------------------------------------------------
(* Clients. `waits`: for the answer to what was sent last; each sending has one answer. `known`: the first item is known  *)
(* to be taken. `both`: so is the second. `doubted`: a release went without an answer, so one that finds nothing may be   *)
(* the second of two.                                                                                                     *)

At(c, place) == client[c].at = place
Hears(c, place, answer) == At(c, place) /\ client[c].answer = answer
Moves(c, place) == client' = [client EXCEPT ![c].at = place, ![c].answer = "none", ![c].waits = FALSE]
Waits(c, place) == client' = [client EXCEPT ![c].at = place, ![c].answer = "none", ![c].waits = TRUE]
Unanswered(c) == client[c].answer = "none"
Sends(kind, c, item, tokens) == wire' = wire \cup {[kind |-> kind, id |-> c, item |-> item, tokens |-> tokens]}
StoreStays == UNCHANGED <<held, spent, charged, lost, late>>
Final == {"new", "denied", "unanswered", "ended", "dead"}

AskFirst(c) == At(c, "new") /\ Waits(c, "first") /\ Sends("take with slots", c, 1, 1) /\ UNCHANGED started

AskFirstAgain(c) == At(c, "first") /\ Unanswered(c) /\ Waits(c, "first") /\ UNCHANGED <<wire, started>>

FirstRefused(c) == Hears(c, "first", "refused") /\ Moves(c, "denied") /\ UNCHANGED <<wire, started>>

AskSecond(c) ==
    /\ Hears(c, "first", "granted")
    /\ client' = [client EXCEPT ![c].at = "second", ![c].answer = "none", ![c].waits = TRUE, ![c].known = TRUE]
    /\ Sends("take", c, 2, 1)
    /\ UNCHANGED started

Start(c) ==
    /\ Hears(c, "second", "granted")
    /\ Moves(c, "working")
    /\ started' = started \cup {c}
    /\ UNCHANGED wire

Undo(c, refused, both) ==
    /\ client' = [client EXCEPT ![c].at = "releasing", ![c].answer = "none", ![c].waits = TRUE,
                                ![c].refused = refused, ![c].both = both]
    /\ Sends("release", c, 1, 1)
    /\ UNCHANGED started

FirstUnanswered(c) == At(c, "first") /\ Unanswered(c) /\ Undo(c, FALSE, FALSE)
SecondRefused(c) == Hears(c, "second", "refused") /\ Undo(c, TRUE, FALSE)
SecondUnanswered(c) == At(c, "second") /\ Unanswered(c) /\ Undo(c, FALSE, FALSE)
Cancelled(c) == Hears(c, "second", "granted") /\ Undo(c, FALSE, TRUE)

Answers(c) == IF client[c].refused THEN "denied" ELSE "unanswered"

ReleaseAgain(c) ==
    /\ client[c].at \in {"releasing", "leaving"} /\ Unanswered(c)
    /\ client' = [client EXCEPT ![c].waits = TRUE, ![c].doubted = TRUE]
    /\ UNCHANGED <<wire, started>>

ReturnSecond(c) == Moves(c, "returning second") /\ Sends("return", c, 2, 1) /\ UNCHANGED started

SlotReleased(c) ==
    /\ Hears(c, "releasing", "released")
    /\ IF client[c].both THEN ReturnSecond(c) ELSE Moves(c, Answers(c)) /\ UNCHANGED <<wire, started>>

(* It had lapsed and was replaced. The rate was charged for certain, and nobody has given it back, only if the take was *)
(* answered and no release went without an answer. *)
SlotGone(c) ==
    /\ Hears(c, "releasing", "gone")
    /\ IF client[c].known /\ ~client[c].doubted
       THEN Moves(c, "returning first") /\ Sends("return", c, 1, 1) /\ UNCHANGED started
       ELSE IF client[c].both THEN ReturnSecond(c)
       ELSE Moves(c, Answers(c)) /\ UNCHANGED <<wire, started>>

(* Answered or not: a return is not sent again. *)
FirstReturned(c) ==
    /\ At(c, "returning first")
    /\ IF client[c].both THEN ReturnSecond(c) ELSE Moves(c, Answers(c)) /\ UNCHANGED <<wire, started>>

SecondReturned(c) == At(c, "returning second") /\ Moves(c, Answers(c)) /\ UNCHANGED <<wire, started>>

Leave(c) == At(c, "working") /\ Waits(c, "leaving") /\ Sends("release", c, 1, 0) /\ UNCHANGED started

Left(c) ==
    /\ At(c, "leaving") /\ client[c].answer \in {"released", "gone"}
    /\ Moves(c, "ended")
    /\ UNCHANGED <<wire, started>>

Crash(c) == client[c].at \notin Final /\ Moves(c, "dead") /\ UNCHANGED <<wire, started>>

----------------------------------------------------------------------------------------------------------------------------
(* The store. Each message is decided in one step on one item; whoever still waits for it may hear the answer, or not.    *)

Answer(c, places, answer) ==
    IF client[c].at \in places /\ client[c].waits
    THEN \E heard \in {answer, "none"} : client' = [client EXCEPT ![c].waits = FALSE, ![c].answer = heard]
    ELSE UNCHANGED client

Charge(c, i, tokens) ==
    /\ spent' = [spent EXCEPT ![i] = @ + tokens]
    /\ charged' = [charged EXCEPT ![c][i] = @ + tokens]

LateUnless(c, place) == late' = IF At(c, place) /\ client[c].waits THEN late ELSE late \cup {c}

DecideFirst(c) ==
    IF c \in held
    THEN UNCHANGED <<held, spent, charged, late>> /\ Answer(c, {"first"}, "granted")
    ELSE IF Cardinality(held) < Slots /\ spent[1] < FirstRate
    THEN held' = held \cup {c} /\ Charge(c, 1, 1) /\ LateUnless(c, "first") /\ Answer(c, {"first"}, "granted")
    ELSE UNCHANGED <<held, spent, charged, late>> /\ Answer(c, {"first"}, "refused")

DecideSecond(c) ==
    /\ UNCHANGED held
    /\ IF spent[2] < SecondRate
       THEN Charge(c, 2, 1) /\ LateUnless(c, "second") /\ Answer(c, {"second"}, "granted")
       ELSE UNCHANGED <<spent, charged, late>> /\ Answer(c, {"second"}, "refused")

DecideRelease(c, tokens) ==
    /\ UNCHANGED late
    /\ IF c \in held
       THEN held' = held \ {c} /\ Charge(c, 1, -tokens) /\ Answer(c, {"releasing", "leaving"}, "released")
       ELSE UNCHANGED <<held, spent, charged>> /\ Answer(c, {"releasing", "leaving"}, "gone")

DecideReturn(c, i, tokens) == Charge(c, i, -tokens) /\ UNCHANGED <<held, late, client>>

OnlyOnce(m) == m.kind \in {"take", "return"}

Decide(m) ==
    /\ CASE m.kind = "take with slots" -> DecideFirst(m.id)
         [] m.kind = "take" -> DecideSecond(m.id)
         [] m.kind = "release" -> DecideRelease(m.id, m.tokens)
         [] m.kind = "return" -> DecideReturn(m.id, m.item, m.tokens)
    /\ wire' = IF OnlyOnce(m) THEN wire \ {m} ELSE wire
    /\ UNCHANGED <<lost, started>>

Lapse(c) ==
    /\ c \in held
    /\ held' = held \ {c}
    /\ lost' = lost \cup {c}
    /\ UNCHANGED <<spent, wire, client, charged, late, started>>

Step(c) ==
    \/ AskFirst(c) \/ AskFirstAgain(c) \/ FirstRefused(c) \/ FirstUnanswered(c)
    \/ AskSecond(c) \/ SecondRefused(c) \/ SecondUnanswered(c)
    \/ Start(c) \/ Cancelled(c) \/ Leave(c) \/ Left(c)
    \/ SlotReleased(c) \/ SlotGone(c) \/ ReleaseAgain(c)
    \/ FirstReturned(c) \/ SecondReturned(c)
    \/ Crash(c)

Next ==
    \/ \E m \in wire : Decide(m)
    \/ \E c \in Clients : (Step(c) /\ StoreStays) \/ Lapse(c)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------------------------------------------------------
(* What must hold.                                                                                                        *)

SlotsNeverOver == Cardinality(held) <= Slots

(* Who began to work is paid for on both items, whatever was given back by whom and how often. *)
NothingMinted == \A c \in Clients, i \in Items : charged[c][i] >= (IF c \in started THEN 1 ELSE 0)

RatesNeverOver == \A i \in Items : Cardinality(started) <= Rate[i]

(* Nobody works who has one item and not the other. *)
AllOrNothing == \A c \in Clients : (At(c, "working") /\ c \notin lost) => (c \in held /\ charged[c] = <<1, 1>>)

(* Unless a slot lapsed meanwhile, or a take came so late that nobody waited for it any more. *)
Orderly(c) == c \notin lost /\ c \notin late

DenialTakesNothing == \A c \in Clients : (At(c, "denied") /\ Orderly(c)) => (c \notin held /\ charged[c] = <<0, 0>>)

SlotsComeBack == \A c \in Clients : (client[c].at \in {"denied", "unanswered", "ended"} /\ Orderly(c)) => c \notin held

ChargedOnce == \A c \in Clients : charged[c][2] <= 1 /\ (Orderly(c) => charged[c][1] <= 1)

Symmetry == Permutations(Clients)
============================================================================================================================
