"""What both ways to a SQLite file share: which file it is, its connection, its jobs, and what its errors mean."""
