-- name: get_document
-- One document. Invariant: in a write it is read under the write lock, so a condition on it holds until the commit.
SELECT body, version, under FROM document WHERE namespace = ? AND kind = ? AND id = ?;

-- name: put_document
-- A document as it shall be from now on.
INSERT INTO document (namespace, kind, id, body, version, under) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, kind, id)
DO UPDATE SET body = excluded.body, version = excluded.version, under = excluded.under;

-- name: delete_document
-- Remove a document. What it is listed under goes in the same transaction.
DELETE FROM document WHERE namespace = ? AND kind = ? AND id = ?;

-- name: list_document_under
-- Have a document found by the entity or resource that it is about.
INSERT INTO document_under (namespace, kind, name, value, id) VALUES (?, ?, ?, ?, ?);

-- name: unlist_document_under
-- The reverse, before the document is deleted or listed under something else.
DELETE FROM document_under WHERE namespace = ? AND kind = ? AND name = ? AND value = ? AND id = ?;

-- name: list_documents
-- A page of the documents whose ids lie in a range.
SELECT id, body, version, under FROM document
WHERE namespace = ? AND kind = ? AND id >= ? AND id < ? ORDER BY id LIMIT ?;

-- name: list_documents_under
-- The same of those that are listed under something. Invariant: each row here has its document.
SELECT d.id, d.body, d.version, d.under
FROM document_under AS u
JOIN document AS d ON d.namespace = u.namespace AND d.kind = u.kind AND d.id = u.id
WHERE u.namespace = ? AND u.kind = ? AND u.name = ? AND u.value = ? AND u.id >= ? AND u.id < ?
ORDER BY u.id LIMIT ?;
