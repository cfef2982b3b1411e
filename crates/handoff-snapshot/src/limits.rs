//! Limits of this crate's own formats. They hold before anything is parsed or unpacked, and together with
//! those of `handoff_protocol::limits` they bound the memory of every operation here.

/// Bytes that one part may unpack to. Parts are unpacked in memory, one at a time.
pub const PART_LOGICAL_BYTES: u64 = 128 << 20;
/// Bytes of one message.
pub const MESSAGE_BYTES: usize = 48 << 20;
/// Bytes of the whole conversation.
pub const MESSAGES_BYTES: u64 = 2 << 30;
/// Bytes of the small files of a session directory (`session.json`, `boundary.json`, `mcp_config.json`).
pub const SMALL_FILE_BYTES: u64 = 4 << 20;
/// Bytes of the system prompt and of the tools' state, each.
pub const STATE_FILE_BYTES: u64 = 48 << 20;
/// Raw bytes of one pack: small files are put together up to it, larger ones are cut into pieces of it.
pub const PACK_BYTES: usize = 8 << 20;
/// Files, directories and links of one workspace.
pub const WORKSPACE_ENTRIES: usize = 500_000;
/// Levels of directories of one workspace.
pub const WORKSPACE_DEPTH: usize = 256;
/// Bytes of one path in a workspace (`PATH_MAX` of Linux without its terminator).
pub const PATH_BYTES: usize = 4095;
/// Bytes of one name in a path (`NAME_MAX` of Linux).
pub const NAME_BYTES: usize = 255;
/// Apparent bytes of one file, holes included.
pub const FILE_BYTES: u64 = 1 << 40;
/// Entries of a report; what comes after is only counted.
pub const REPORT_ENTRIES: usize = 500;
/// Raw bytes of the middle and the small chunks that the end of a conversation is cut into.
pub const TAIL_CHUNK_BYTES: [usize; 2] = [32 << 10, 4 << 10];
/// Bytes of a file of the workspace that is looked through for what looks like a credential.
pub const SEARCH_FILE_BYTES: u64 = 1 << 20;
/// Bytes that one search through a workspace looks at.
pub const SEARCH_BYTES: u64 = 256 << 20;
/// Bytes that the search of a final capture looks at, since a session stands still meanwhile.
pub const SEARCH_FINAL_BYTES: u64 = 16 << 20;
