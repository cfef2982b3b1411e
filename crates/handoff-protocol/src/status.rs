//! The seven statuses of a transfer, and the two groups that a session arbitrates between.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a transfer stands. There is no eighth.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The snapshot is captured; there is no destination yet.
    Staged,
    /// A destination is sized and budgeted; no data has been accepted there.
    Provisioned,
    /// The destination holds the snapshot and has verified it.
    Pushed,
    /// The destination has resumed from the snapshot.
    Active,
    /// Spend has reached the budget; the grace period is running.
    Insolvent,
    /// Torn down, with a reason.
    Terminated,
    /// Never activated within the time to live.
    Expired,
}

impl Status {
    /// All seven, in the order a transfer walks through them.
    pub const ALL: [Self; 7] = [
        Self::Staged,
        Self::Provisioned,
        Self::Pushed,
        Self::Active,
        Self::Insolvent,
        Self::Terminated,
        Self::Expired,
    ];

    /// The word used in every column, route and document.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Provisioned => "provisioned",
            Self::Pushed => "pushed",
            Self::Active => "active",
            Self::Insolvent => "insolvent",
            Self::Terminated => "terminated",
            Self::Expired => "expired",
        }
    }

    /// The status with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Before activation: the session may have one transfer like this.
    pub const fn is_pending(self) -> bool {
        match self {
            Self::Staged | Self::Provisioned | Self::Pushed => true,
            Self::Active | Self::Insolvent | Self::Terminated | Self::Expired => false,
        }
    }

    /// Activated and not over: the session may have one transfer like this.
    pub const fn is_live(self) -> bool {
        match self {
            Self::Active | Self::Insolvent => true,
            Self::Staged | Self::Provisioned | Self::Pushed | Self::Terminated | Self::Expired => false,
        }
    }

    /// Nothing leads out of it.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Terminated | Self::Expired => true,
            Self::Staged | Self::Provisioned | Self::Pushed | Self::Active | Self::Insolvent => false,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_in_exactly_one_group_and_reads_back() {
        for status in Status::ALL {
            let groups = [status.is_pending(), status.is_live(), status.is_terminal()];
            assert_eq!(groups.iter().filter(|group| **group).count(), 1, "{status}");
            assert_eq!(Status::parse(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).expect("a word"), status.as_str());
        }
        assert_eq!(Status::parse("paused"), None);
    }
}
