//! Capture, sealing and restore of snapshots, and the directory blob store.
