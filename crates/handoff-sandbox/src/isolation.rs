//! What separates a sandbox from its host: a closed list of facts, each enforced by something named or lost
//! for a reason given. Facts come from trying and reading back, never from what a host looks like.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason of a facet that nothing is known of.
pub(crate) const NOT_TRIED: &str = "not tried";

macro_rules! facets {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
        /// One side of the isolation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Facet {
            $($(#[$doc])* $name,)*
        }

        impl Facet {
            /// Every facet.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stable word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }
        }
    };
}

facets! {
    /// Ids inside mean nothing outside.
    UserNamespace = "user_namespace";
    /// Mounts inside are seen nowhere else.
    MountNamespace = "mount_namespace";
    /// Processes outside cannot be seen or signalled.
    PidNamespace = "pid_namespace";
    /// Network devices and abstract sockets of its own.
    NetNamespace = "net_namespace";
    /// System V and POSIX queues of its own.
    IpcNamespace = "ipc_namespace";
    /// A host name of its own.
    UtsNamespace = "uts_namespace";
    /// A cgroup tree of its own.
    CgroupNamespace = "cgroup_namespace";
    /// Only what is on the list can be seen, and none of it written to.
    ReadOnlyRoot = "read_only_root";
    /// Nothing can be reached but the gateway's socket.
    NoNetwork = "no_network";
    /// No socket of the host can be reached by its path but the gateway's: not the control plane's, whose owner
    /// the payload's user is, nor any other service's.
    NoHostSockets = "no_host_sockets";
    /// No capability, in any set.
    DroppedCapabilities = "dropped_capabilities";
    /// No program gains privileges when it is run.
    NoNewPrivs = "no_new_privs";
    /// System calls that widen the attack surface are refused.
    Seccomp = "seccomp";
    /// A second fence around files, which no mount can lift.
    Landlock = "landlock";
    /// A session of its own: `kill(0)` stays inside.
    Setsid = "setsid";
    /// The tier's bytes of memory.
    Memory = "memory";
    /// The tier's number of processes and threads.
    Pids = "pids";
    /// The tier's share of processors.
    Cpu = "cpu";
    /// All of it can be held still at once.
    Freeze = "freeze";
}

impl fmt::Display for Facet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How one facet stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// It holds.
    Enforced {
        /// By what.
        by: String,
    },
    /// It does not.
    Lost {
        /// Why not.
        why: String,
    },
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforced { by } => f.write_str(by),
            Self::Lost { why } => write!(f, "lost: {why}"),
        }
    }
}

/// The facts about one sandbox, or about what this host can give.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Isolation(BTreeMap<Facet, Fact>);

impl Isolation {
    /// Records that a facet holds.
    pub fn enforced(&mut self, facet: Facet, by: impl Into<String>) {
        self.0.insert(facet, Fact::Enforced { by: by.into() });
    }

    /// Records that a facet does not hold. The last word about a facet counts.
    pub fn lost(&mut self, facet: Facet, why: impl Into<String>) {
        self.0.insert(facet, Fact::Lost { why: why.into() });
    }

    /// Takes over all facts of another list.
    pub fn absorb(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Says of every facet without a fact that it is lost, for this reason.
    #[must_use]
    pub fn rest_lost(mut self, why: &str) -> Self {
        for facet in Facet::ALL {
            self.0.entry(*facet).or_insert_with(|| Fact::Lost { why: why.to_owned() });
        }
        self
    }

    /// One facet's fact; lost where nothing was recorded.
    pub fn get(&self, facet: Facet) -> Fact {
        self.0.get(&facet).cloned().unwrap_or_else(|| Fact::Lost { why: NOT_TRIED.to_owned() })
    }

    /// Whether a facet holds.
    pub fn holds(&self, facet: Facet) -> bool {
        matches!(self.get(facet), Fact::Enforced { .. })
    }

    /// All facets in order.
    pub fn iter(&self) -> impl Iterator<Item = (Facet, Fact)> + '_ {
        Facet::ALL.iter().map(|facet| (*facet, self.get(*facet)))
    }

    /// What is lost, and why.
    pub fn losses(&self) -> impl Iterator<Item = (Facet, String)> + '_ {
        self.iter().filter_map(|(facet, fact)| match fact {
            Fact::Lost { why } => Some((facet, why)),
            Fact::Enforced { .. } => None,
        })
    }

    /// Whether nothing is lost.
    pub fn is_whole(&self) -> bool {
        self.losses().next().is_none()
    }

    /// As a node registers it: `memory → "cgroup v1"`, `cpu → "lost: …"`.
    pub fn words(&self) -> BTreeMap<String, String> {
        self.iter().map(|(facet, fact)| (facet.to_string(), fact.to_string())).collect()
    }
}

impl fmt::Display for Isolation {
    /// The losses in one line, or that there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let losses: Vec<String> = self.losses().map(|(facet, why)| format!("{facet} ({why})")).collect();
        if losses.is_empty() { f.write_str("nothing is lost") } else { f.write_str(&losses.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_tried_is_lost() {
        let mut facts = Isolation::default();
        facts.enforced(Facet::Memory, "cgroup v1");
        assert!(facts.holds(Facet::Memory) && !facts.holds(Facet::Pids) && !facts.is_whole());
        assert_eq!(facts.losses().count(), Facet::ALL.len() - 1);
        assert_eq!(facts.words()["memory"], "cgroup v1");
        assert_eq!(facts.words()["pids"], "lost: not tried");
    }

    #[test]
    fn words_and_wire_names_agree() {
        for facet in Facet::ALL {
            let wire = serde_json::to_string(facet).expect("a word");
            assert_eq!(wire, format!("\"{facet}\""));
        }
    }
}
