//! The grid: which command is legal from which status, who may give it, and which usage event it writes. The
//! table in `docs/protocol.md` is compared with this one.

use handoff_protocol::Status;
use handoff_protocol::Status::{Active, Expired, Insolvent, Provisioned, Pushed, Staged, Terminated};
use handoff_protocol::request::EventType;

use crate::command::Role;

macro_rules! grid {
    ($($(#[$doc:meta])* $kind:ident = $word:literal, by [$($role:ident),*], from [$($from:ident),*], event $event:expr;)*) => {
        /// A row of the grid.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum CommandKind {
            $($(#[$doc])* $kind,)*
        }

        impl CommandKind {
            /// Every row.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The command's word: in routes, audit rows, request records and the document.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $word),* }
            }

            /// The statuses it is legal from. Empty for commands about the session alone.
            pub const fn legal_from(self) -> &'static [Status] {
                match self { $(Self::$kind => &[$($from),*]),* }
            }

            /// The usage event that it writes, if any.
            pub const fn event(self) -> Option<EventType> {
                match self { $(Self::$kind => $event),* }
            }

            /// Whether somebody in this role may give it. An admin may give all that people may give.
            pub fn permits(self, role: Role) -> bool {
                let roles: &[Role] = match self { $(Self::$kind => &[$(Role::$role),*]),* };
                let by_people = roles.iter().any(|role| !matches!(role, Role::Node | Role::ControlPlane));
                roles.contains(&role) || (role == Role::Admin && by_people)
            }
        }
    };
}

grid! {
    /// Start a transfer.
    Stage = "stage", by [Source, Caller, Orchestrator], from [], event Some(EventType::SnapshotCreated);
    /// Replace its snapshot.
    Refresh = "refresh", by [Source, Caller, Orchestrator, Node], from [Staged, Provisioned], event None;
    /// Size and budget a destination.
    Provision = "provision", by [Caller, Orchestrator], from [Staged], event Some(EventType::RuntimeProvisioned);
    /// Ask the destination to verify.
    Push = "push", by [Caller, Orchestrator], from [Provisioned], event None;
    /// The node verified.
    Receipt = "receipt", by [Node], from [Provisioned, Pushed], event Some(EventType::StatePushed);
    /// Let the destination claim.
    Activate = "activate", by [Caller, Orchestrator], from [Pushed], event None;
    /// The destination cannot.
    Decline = "decline", by [Node], from [Pushed], event None;
    /// Nobody did in time.
    Withdraw = "withdraw", by [ControlPlane], from [Pushed], event None;
    /// The destination takes the session.
    Claim = "claim", by [Node], from [Pushed], event Some(EventType::Activated);
    /// Another incarnation takes it.
    Reclaim = "re-claim", by [Node], from [Active, Insolvent], event None;
    /// The holder goes on.
    Renew = "renew", by [Node], from [Active, Insolvent], event None;
    /// The destination stored a snapshot.
    Checkpoint = "checkpoint", by [Node], from [Active, Insolvent, Terminated], event None;
    /// The holder goes to rest.
    Rest = "rest", by [Node], from [Active], event None;
    /// It is to run again.
    Wake = "wake", by [Caller, Orchestrator], from [Active], event None;
    /// A meter's cumulative report.
    ReportUsage = "report_usage", by [Node], from [Active, Insolvent, Terminated], event Some(EventType::UsageReported);
    /// An increment, as a tool.
    RecordSpend = "record_spend", by [Caller, Orchestrator], from [Active, Insolvent], event Some(EventType::UsageReported);
    /// A new absolute budget.
    RaiseBudget = "raise_budget", by [Orchestrator], from [Provisioned, Pushed, Active, Insolvent], event None;
    /// Another assignment.
    Reassign = "reassign", by [ControlPlane], from [Provisioned, Pushed, Active, Insolvent], event None;
    /// End it.
    Terminate = "terminate", by [Orchestrator, ControlPlane], from [Staged, Provisioned, Pushed, Active, Insolvent], event Some(EventType::Terminated);
    /// It was not activated in time.
    Expire = "expire", by [ControlPlane], from [Staged, Provisioned, Pushed], event Some(EventType::Expired);
    /// A frozen source takes its session back.
    Return = "return", by [Source, Caller, Orchestrator], from [], event None;
    /// A source is given up.
    AbandonSource = "abandon_source", by [Orchestrator], from [], event None;
    /// What a node finds.
    Observe = "observe", by [Node], from [Staged, Provisioned, Pushed, Active, Insolvent, Terminated, Expired], event None;
    /// An epoch is closed at its full limit.
    WriteOff = "write_off", by [Orchestrator], from [Active, Insolvent, Terminated], event None;
}

impl std::fmt::Display for CommandKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
