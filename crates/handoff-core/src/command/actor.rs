//! Who gives a command, and in which role.

/// Who asks. Surfaces decide what a role may ask at all; the machine records who it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Actor {
    /// The name in events and audit rows.
    pub principal: String,
    /// In which role.
    pub role: Role,
}

/// What somebody may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A loop that runs on a host: stage, refresh, return, its own status.
    Source,
    /// The six tools; provision and activate need a token.
    Caller,
    /// Mint, approve, raise, terminate.
    Orchestrator,
    /// Reconcile destinations.
    Node,
    /// Look.
    Viewer,
    /// Everything.
    Admin,
    /// The control plane itself: reaper and time-outs.
    ControlPlane,
}

impl Role {
    /// The word in keys, events and the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Caller => "caller",
            Self::Orchestrator => "orchestrator",
            Self::Node => "node",
            Self::Viewer => "viewer",
            Self::Admin => "admin",
            Self::ControlPlane => "control_plane",
        }
    }

    /// The role with this word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [
            Self::Source,
            Self::Caller,
            Self::Orchestrator,
            Self::Node,
            Self::Viewer,
            Self::Admin,
            Self::ControlPlane,
        ];
        all.into_iter().find(|role| role.as_str() == word)
    }
}
