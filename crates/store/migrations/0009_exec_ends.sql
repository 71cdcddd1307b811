-- What the ledger of an exec that ended must have, so that one that was cut short is not taken for a whole one.

-- Number of its last entry when it ended; NULL until then, and for those that ended before this was written down.
ALTER TABLE execs ADD COLUMN last_entry INTEGER;
-- Pieces of output that never came into the ledger.
ALTER TABLE execs ADD COLUMN n_lost INTEGER NOT NULL DEFAULT 0;
