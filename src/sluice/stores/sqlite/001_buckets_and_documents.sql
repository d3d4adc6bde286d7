-- Migration 1: buckets, documents, and what documents are listed under.
-- Invariant: a bucket's number only says how old it is; its state is whole in one row, so one write saves it.
CREATE TABLE bucket (
    number INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    entity TEXT NOT NULL,
    resource TEXT NOT NULL,
    state TEXT NOT NULL
);
CREATE UNIQUE INDEX bucket_by_key ON bucket (namespace, key);
CREATE INDEX bucket_by_entity ON bucket (namespace, entity, key);
CREATE INDEX bucket_by_resource ON bucket (namespace, resource, key);
CREATE TABLE document (
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    version TEXT NOT NULL,
    under TEXT NOT NULL,
    PRIMARY KEY (namespace, kind, id)
) WITHOUT ROWID;
CREATE TABLE document_under (
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (namespace, kind, name, value, id)
) WITHOUT ROWID;
