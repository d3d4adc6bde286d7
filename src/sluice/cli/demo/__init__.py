"""The demo: processes share limits in one SQLite file, in front of a fake vendor, and one of them is killed.

    scenario    what is asked: limits, calls, what a worker and the vendor are told    values
    worker      what one process does; all it knows it says in notes                   a process of its own
    vendor      answers calls, or refuses them; never answers one                      a process of its own
    notes       how these two talk with their parent                                   JSON lines
    crew        starts, hears, kills and stops the processes                           pipes and threads
    play        the course of a demo: when to kill, when it is over
    history     all notes, put together                                                values
    verdict     what must hold of a history, and whether it did                        pure
    scene       what there is to see at a moment                                       values
    screen      the same, drawn as plain lines; live: drawn with rich
    command     all of it together, and the exit status

The judge is `sluice.testing.vendor`, which shares no arithmetic with Sluice. It judges twice: the grants, by the time
at which the store decided them; and the calls, by the time at which they reached the vendor, with the jitter that was
measured between the two. Both come from what the processes noted, never from what Sluice keeps in its buckets.
"""
