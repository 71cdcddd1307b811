-- A request id is its caller's own: another key of the namespace may use the same one.
DROP INDEX sandboxes_by_request;
CREATE UNIQUE INDEX sandboxes_by_request ON sandboxes (namespace, COALESCE(owner, ''), request_id)
    WHERE request_id IS NOT NULL;
