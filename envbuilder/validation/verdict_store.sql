BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS verdicts (
    key TEXT PRIMARY KEY, environment TEXT NOT NULL, digest TEXT NOT NULL, verdict TEXT NOT NULL,
    level TEXT NOT NULL, simulated INTEGER NOT NULL, finished TEXT NOT NULL, document BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_time ON verdicts (finished, environment);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON verdicts
BEGIN SELECT RAISE(ABORT, 'history is append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON verdicts
BEGIN SELECT RAISE(ABORT, 'history is append-only'); END;
PRAGMA user_version = 1;
COMMIT;
