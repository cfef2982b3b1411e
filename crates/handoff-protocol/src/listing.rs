//! What `/v1` answers with when it is asked for many things, or how it is.
//!
//! | route | query → reply |
//! |---|---|
//! | `GET /v1/transfers` | [`TransferQuery`] → [`TransferPage`] |
//! | `GET /v1/transfers/{id}` | [`ViewQuery`] → [`crate::request::TransferView`] |
//! | `GET /v1/transfers/{id}/events` | [`EventQuery`] → [`EventPage`] |
//! | `GET /v1/sessions` | [`SessionQuery`] → [`SessionPage`] |
//! | `GET /v1/sessions/{id}` | → [`crate::request::SessionView`] |
//! | `GET /v1/nodes` | → [`NodePage`] |
//! | `GET /v1/tiers` | → [`TierPage`] |
//! | `GET /v1/approvals` | → [`ApprovalPage`] |
//! | `GET /healthz`, `GET /readyz` | → [`Health`] |

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node::Capacity;
use crate::request::{ApprovalView, EventView, SessionView, TransferView};
use crate::{NodeId, SessionId, Status, Tier, Timestamp, TransferId};

/// Which transfers to list; newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferQuery {
    /// Only these statuses, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Only this session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Only those whose ledger is not closed.
    #[serde(default)]
    pub unclosed: bool,
    /// Only older ones than this: the cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<TransferId>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl TransferQuery {
    /// Only transfers that stand in one of these.
    #[must_use]
    pub fn in_status(mut self, statuses: &[Status]) -> Self {
        let words: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
        self.status = Some(words.join(","));
        self
    }
}

/// Which part of one transfer's view is wanted, and how long to wait for news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewQuery {
    /// Only events after this seq: the cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// At most so many events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Answer once the version is higher than this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer_than: Option<u64>,
    /// Seconds to wait for that at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<u64>,
}

/// Which events are wanted, and how long to wait for the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Only events after this seq: the cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Seconds to wait for one at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<u64>,
}

/// Which sessions to list; newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionQuery {
    /// Only older ones than this: the cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<SessionId>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The long poll of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesiredQuery {
    /// Answer once the revision is higher than this one; left out, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Seconds to wait for that at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<u64>,
}

/// A page of transfers, each without its events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TransferPage {
    /// Newest first.
    pub transfers: Vec<TransferView>,
    /// Where the next page starts, if there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<TransferId>,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// Oldest first.
    pub events: Vec<EventView>,
    /// Where the next page starts, if there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<u64>,
}

/// A page of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionPage {
    /// Newest first.
    pub sessions: Vec<SessionView>,
    /// Where the next page starts, if there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<SessionId>,
}

/// All nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodePage {
    /// In the order of their ids.
    pub nodes: Vec<NodeView>,
}

/// A node as the control plane knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    /// Its id.
    pub node_id: NodeId,
    /// Its name for people.
    pub name: String,
    /// What it offers in all.
    pub capacity: Capacity,
    /// What is not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Capacity>,
    /// What each limit is enforced by there.
    pub isolation: BTreeMap<String, String>,
    /// When it was last heard of, by the store's clock.
    pub seen_at: Timestamp,
}

/// The sizes on offer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TierPage {
    /// In the operator's order.
    pub tiers: Vec<Tier>,
}

/// All approvals that can still be decided or used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalPage {
    /// Oldest first.
    pub approvals: Vec<ApprovalView>,
}

/// How the control plane is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Which control plane answers.
    pub control_plane: String,
    /// The version of the program.
    pub version: String,
}
