-- To count and trim the calls of each caller.
CREATE INDEX calls_by_caller ON calls (who, number) WHERE who IS NOT NULL;
