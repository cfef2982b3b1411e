//! The ledger's adapters: SQLite and memory behind one port, with the group-commit writer.
