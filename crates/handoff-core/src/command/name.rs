//! What a command names: its transfer, its session, its row in the grid.

use handoff_protocol::{SessionId, TransferId};

use super::Command;

impl Command {
    /// The transfer it names.
    pub fn transfer(&self) -> Option<TransferId> {
        match self {
            Self::Stage(stage) => Some(stage.transfer),
            Self::Refresh(refresh) => Some(refresh.transfer),
            Self::Provision(provision) => Some(provision.transfer),
            Self::Claim(claim) => Some(claim.transfer),
            Self::Reclaim(reclaim) => Some(reclaim.transfer),
            Self::Push { transfer, .. }
            | Self::Receipt { transfer, .. }
            | Self::Activate { transfer, .. }
            | Self::Decline { transfer, .. }
            | Self::Withdraw { transfer, .. }
            | Self::Renew { transfer, .. }
            | Self::Checkpoint { transfer, .. }
            | Self::Rest { transfer, .. }
            | Self::ReportUsage { transfer, .. }
            | Self::RecordSpend { transfer, .. }
            | Self::RaiseBudget { transfer, .. }
            | Self::Reassign { transfer, .. }
            | Self::Terminate { transfer, .. }
            | Self::Expire { transfer }
            | Self::Observe { transfer, .. }
            | Self::WriteOff { transfer, .. } => Some(*transfer),
            Self::Wake { .. } | Self::Return { .. } | Self::AbandonSource { .. } => None,
        }
    }

    /// The session it names, where it names one.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Stage(stage) => Some(stage.session),
            Self::Wake { session } | Self::Return { session, .. } | Self::AbandonSource { session } => {
                Some(*session)
            }
            Self::Refresh(_)
            | Self::Provision(_)
            | Self::Claim(_)
            | Self::Reclaim(_)
            | Self::Push { .. }
            | Self::Receipt { .. }
            | Self::Activate { .. }
            | Self::Decline { .. }
            | Self::Withdraw { .. }
            | Self::Renew { .. }
            | Self::Checkpoint { .. }
            | Self::Rest { .. }
            | Self::ReportUsage { .. }
            | Self::RecordSpend { .. }
            | Self::RaiseBudget { .. }
            | Self::Reassign { .. }
            | Self::Terminate { .. }
            | Self::Expire { .. }
            | Self::Observe { .. }
            | Self::WriteOff { .. } => None,
        }
    }

    /// Its row in the grid.
    pub const fn kind(&self) -> crate::grid::CommandKind {
        use crate::grid::CommandKind as Kind;
        match self {
            Self::Stage(_) => Kind::Stage,
            Self::Refresh(_) => Kind::Refresh,
            Self::Provision(_) => Kind::Provision,
            Self::Push { .. } => Kind::Push,
            Self::Receipt { .. } => Kind::Receipt,
            Self::Activate { .. } => Kind::Activate,
            Self::Decline { .. } => Kind::Decline,
            Self::Withdraw { .. } => Kind::Withdraw,
            Self::Claim(_) => Kind::Claim,
            Self::Reclaim(_) => Kind::Reclaim,
            Self::Renew { .. } => Kind::Renew,
            Self::Checkpoint { .. } => Kind::Checkpoint,
            Self::Rest { .. } => Kind::Rest,
            Self::Wake { .. } => Kind::Wake,
            Self::ReportUsage { .. } => Kind::ReportUsage,
            Self::RecordSpend { .. } => Kind::RecordSpend,
            Self::RaiseBudget { .. } => Kind::RaiseBudget,
            Self::Reassign { .. } => Kind::Reassign,
            Self::Terminate { .. } => Kind::Terminate,
            Self::Expire { .. } => Kind::Expire,
            Self::Return { .. } => Kind::Return,
            Self::AbandonSource { .. } => Kind::AbandonSource,
            Self::Observe { .. } => Kind::Observe,
            Self::WriteOff { .. } => Kind::WriteOff,
        }
    }
}
