"""The demo: processes share limits in one SQLite file, in front of a fake vendor, and one of them is killed.

    scenario    what is asked: limits, calls, who dies and when              values
    worker      what one process does; all it knows it says in notes         a process of its own
    crew        starts, hears, kills and stops the processes                 pipes and threads
    history     all notes of all workers, put together                       values
    verdict     what must hold of a history, and whether it did              pure
    scene       what there is to see at a moment                             values
    screen      the same, drawn: live with rich, or as plain lines
    command     all of it together, and the exit status

The judge is `sluice.testing.vendor`, which shares no arithmetic with Sluice. It judges twice: the grants, by the time
that the store decided them at; and the calls, by the time at which they began, with the jitter that was measured
between the two. Both come from what the workers noted, never from what Sluice keeps in its buckets.
"""
