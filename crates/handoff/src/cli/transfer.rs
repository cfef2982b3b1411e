//! The words of `handoff transfer …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use handoff_protocol::id::RequestId;
use handoff_protocol::{Digest, NanoUsd, NodeId, SessionId, TierName, TransferId};

use super::tier;

/// `handoff transfer …`
#[derive(Debug, Subcommand)]
pub enum Transfer {
    /// Stage a snapshot from a minimal input in a file, or refresh a pending transfer.
    Snapshot {
        /// The input: JSON with source_host, system_prompt, message_history, tool_state, mcp_config.
        #[arg(long, value_name = "FILE")]
        input: Option<PathBuf>,
        /// A known session: its last accepted snapshot, or the input as its next one.
        #[arg(long)]
        session: Option<SessionId>,
        /// The session's epoch as you know it.
        #[arg(long)]
        expected_epoch: Option<u64>,
        /// Refresh this pending transfer.
        #[arg(long)]
        transfer: Option<TransferId>,
        /// The holder has stopped at a step boundary.
        #[arg(long = "final")]
        is_final: bool,
        #[command(flatten)]
        request: Repeatable,
    },
    /// Size and budget a destination.
    Provision {
        /// Which.
        transfer: TransferId,
        /// A file with the token; - reads it from standard input.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// The size.
        #[arg(long, value_parser = tier)]
        tier: TierName,
        /// What it may spend in all, in US dollars.
        #[arg(long, value_name = "USD")]
        budget: NanoUsd,
        /// Take the budget out of the live transfer's.
        #[arg(long)]
        carve: bool,
        /// A node.
        #[arg(long)]
        node: Option<NodeId>,
        #[command(flatten)]
        request: Repeatable,
    },
    /// Have the destination fetch and verify the snapshot.
    Push {
        /// Which.
        transfer: TransferId,
        /// What you believe it carries.
        #[arg(long)]
        checksum: Option<Digest>,
        #[command(flatten)]
        request: Repeatable,
    },
    /// Let the destination take the session. Irreversible.
    Activate {
        /// Which.
        transfer: TransferId,
        /// A file with the token; - reads it from standard input.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        #[command(flatten)]
        request: Repeatable,
    },
    /// Name a new absolute budget.
    Raise {
        /// Which.
        transfer: TransferId,
        /// The amount in all, in US dollars.
        #[arg(long, value_name = "USD")]
        budget: NanoUsd,
        #[command(flatten)]
        request: Repeatable,
    },
    /// End a transfer. The session stays.
    Terminate {
        /// Which.
        transfer: TransferId,
        /// Why, for the event log.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        request: Repeatable,
    },
    /// Close an epoch whose node will never report again, at its full limit.
    WriteOff {
        /// Which.
        transfer: TransferId,
        /// The epoch.
        #[arg(long)]
        epoch: u64,
        /// Why, for the audit log.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        request: Repeatable,
    },
    /// The event log of a transfer.
    Events {
        /// Which.
        transfer: TransferId,
        /// After this seq.
        #[arg(long, default_value_t = 0)]
        after: u64,
    },
}

/// A call that can be repeated safely.
#[derive(Debug, Clone, Args)]
pub struct Repeatable {
    /// Your id of this request: repeating it gets the same answer.
    #[arg(long, value_name = "ID")]
    pub request_id: Option<RequestId>,
}
