-- name: load_bucket
-- One bucket as it is. Invariant: in a write it is read under the write lock, so it stays so until it is saved.
SELECT number, state FROM bucket WHERE namespace = ? AND key = ?;

-- name: save_bucket
-- The new state of a bucket that was loaded in this transaction. No index knows the state, so one page is written.
UPDATE bucket SET state = ? WHERE number = ?;

-- name: add_bucket
-- A bucket that was not there when it was loaded in this transaction. Its number is above all others.
INSERT INTO bucket (namespace, key, entity, resource, state) VALUES (?, ?, ?, ?, ?);

-- name: forget_bucket
-- Remove a bucket, whatever is in it.
DELETE FROM bucket WHERE namespace = ? AND key = ?;

-- name: span_of_numbers
-- The oldest and the newest number: both ends of one b-tree, so it costs the same however many there are.
SELECT (SELECT min(number) FROM bucket), (SELECT max(number) FROM bucket);

-- name: buckets_from_number
-- A stretch of buckets to look over for idle ones.
SELECT namespace, key, state FROM bucket WHERE number >= ? ORDER BY number LIMIT ?;

-- name: list_buckets
-- A page of keys, in the order of their bytes, which is that of their characters.
SELECT key FROM bucket WHERE namespace = ? AND key >= ? ORDER BY key LIMIT ?;

-- name: list_buckets_of_entity
-- The same for one entity.
SELECT key FROM bucket WHERE namespace = ? AND entity = ? AND key >= ? ORDER BY key LIMIT ?;

-- name: list_buckets_of_resource
-- The same for one resource.
SELECT key FROM bucket WHERE namespace = ? AND resource = ? AND key >= ? ORDER BY key LIMIT ?;
