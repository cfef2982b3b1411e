//! The words that stand for our enums in columns. They never change: rows with them exist.

use handoff_core::command::Role;
use handoff_core::state::Standing;
use handoff_core::transfer::{Closing, Ground};
use handoff_protocol::Status;
use handoff_protocol::node::ObservedState;
use handoff_protocol::request::{EventType, Operation};

/// An enum without data, as a column holds it.
pub(crate) trait Word: Copy + Sized {
    /// The word.
    fn word(self) -> &'static str;

    /// The value with this word.
    fn from_word(word: &str) -> Option<Self>;
}

macro_rules! words {
    ($($type:ty { $($variant:ident = $word:literal),* $(,)? })*) => {$(
        impl Word for $type {
            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    )*};
}

words! {
    Status {
        Staged = "staged", Provisioned = "provisioned", Pushed = "pushed", Active = "active",
        Insolvent = "insolvent", Terminated = "terminated", Expired = "expired",
    }
    ObservedState {
        Warm = "warm", Prepared = "prepared", Running = "running", Frozen = "frozen", Resting = "resting",
        Absent = "absent", Failed = "failed",
    }
    Standing { Draft = "draft", Final = "final", Checkpoint = "checkpoint" }
    Ground { Quiesced = "quiesced", LastAccepted = "last_accepted" }
    Closing { Reported = "reported", WrittenOff = "written_off" }
    Operation { ProvisionRuntime = "provision_runtime", Activate = "activate" }
    Role {
        Source = "source", Caller = "caller", Orchestrator = "orchestrator", Node = "node", Viewer = "viewer",
        Admin = "admin", ControlPlane = "control_plane",
    }
    EventType {
        SnapshotCreated = "snapshot_created", RuntimeProvisioned = "runtime_provisioned",
        StatePushed = "state_pushed", Activated = "activated", UsageReported = "usage_reported",
        Insolvent = "insolvent", Terminated = "terminated", Expired = "expired",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_hold_the_same_words_as_documents() {
        for status in Status::ALL {
            assert_eq!(status.word(), status.as_str());
            assert_eq!(Status::from_word(status.word()), Some(status));
        }
        for kind in EventType::ALL {
            assert_eq!(kind.word(), kind.as_str());
            assert_eq!(EventType::from_word(kind.word()), Some(kind));
        }
        for word in ["warm", "prepared", "running", "frozen", "resting", "absent", "failed"] {
            let state = ObservedState::from_word(word).expect("a known word");
            assert_eq!(serde_json::to_value(state).expect("a word"), word);
        }
        for role in ["source", "caller", "orchestrator", "node", "viewer", "admin", "control_plane"] {
            let known = Role::from_word(role).expect("a known word");
            assert_eq!((known.word(), Role::parse(role)), (known.as_str(), Some(known)));
        }
        for standing in [Standing::Draft, Standing::Final, Standing::Checkpoint] {
            assert_eq!(standing.word(), standing.as_str());
        }
        for ground in [Ground::Quiesced, Ground::LastAccepted] {
            assert_eq!(ground.word(), ground.as_str());
        }
        for operation in [Operation::ProvisionRuntime, Operation::Activate] {
            assert_eq!(operation.word(), operation.as_str());
        }
    }

    #[test]
    fn another_word_is_no_value() {
        assert_eq!(Status::from_word("paused"), None);
        assert_eq!(Closing::from_word(""), None);
        assert_eq!(Standing::from_word("Draft"), None);
    }
}
