//! Who asks, and what they may ask. Surfaces find out who it is; nothing else decides what that allows.

use std::collections::BTreeSet;

use handoff_core::grid::CommandKind;
use handoff_core::{Actor, Role};
use handoff_protocol::{NodeId, ProjectId};

/// Somebody who asks: a name, what it may ask in, and whose sessions it may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name in events, audit rows and request records.
    pub name: String,
    /// Whose sessions it may touch.
    pub project: ProjectId,
    roles: BTreeSet<Role>,
    node: Option<NodeId>,
}

/// In which of several roles somebody acts: the narrowest that may comes first.
const PREFERENCE: [Role; 7] = [
    Role::Node,
    Role::Viewer,
    Role::Caller,
    Role::Source,
    Role::Orchestrator,
    Role::Admin,
    Role::ControlPlane,
];

impl Principal {
    /// Somebody with these roles.
    pub fn new(name: impl Into<String>, project: ProjectId, roles: impl IntoIterator<Item = Role>) -> Self {
        Self { name: name.into(), project, roles: roles.into_iter().collect(), node: None }
    }

    /// The user of this machine who owns the control plane: everything that people and nodes may do.
    pub fn owner(project: ProjectId) -> Self {
        let roles = [Role::Source, Role::Caller, Role::Orchestrator, Role::Viewer, Role::Admin];
        Self::new("owner", project, roles)
    }

    /// The control plane itself, for the reaper and time-outs.
    pub(crate) fn control_plane(project: ProjectId) -> Self {
        Self::new("control-plane", project, [Role::ControlPlane])
    }

    /// The same one in one of its roles only. An admin has all roles that people have.
    pub fn narrowed(mut self, role: Role) -> Option<Self> {
        let of_people = !matches!(role, Role::Node | Role::ControlPlane);
        let has = self.roles.contains(&role) || (self.roles.contains(&Role::Admin) && of_people);
        self.roles = BTreeSet::from([role]);
        has.then_some(self)
    }

    /// A node that this one may speak for: its own name, and nothing but a node's role.
    pub fn as_node(mut self, node: NodeId) -> Option<Self> {
        let may = self.roles.contains(&Role::Admin) || self.node == Some(node);
        (self.name, self.roles, self.node) = (node.to_string(), BTreeSet::from([Role::Node]), Some(node));
        may.then_some(self)
    }

    /// The node it speaks as.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Whether it has this role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// The actor that gives a command of this kind, if it may.
    pub(crate) fn acting(&self, kind: CommandKind) -> Option<Actor> {
        let may = |role: &Role| self.has(*role) && kind.permits(*role);
        PREFERENCE.into_iter().find(may).map(|role| self.actor(role))
    }

    /// The actor in one of these roles, if it has one of them.
    pub(crate) fn acting_as(&self, roles: &[Role]) -> Option<Actor> {
        let may = |role: &Role| self.has(*role) && roles.contains(role);
        PREFERENCE.into_iter().find(may).map(|role| self.actor(role))
    }

    fn actor(&self, role: Role) -> Actor {
        Actor { principal: self.name.clone(), role }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Principal {
        Principal::owner(ProjectId::from_u128(1))
    }

    #[test]
    fn narrowing_takes_roles_away_and_gives_none() {
        let caller = owner().narrowed(Role::Caller).expect("an owner is a caller");
        assert!(caller.acting(CommandKind::Provision).is_some());
        assert!(caller.acting(CommandKind::Terminate).is_none());
        assert!(caller.clone().narrowed(Role::Orchestrator).is_none());
        assert!(caller.as_node(NodeId::from_u128(1)).is_none());
        assert!(owner().narrowed(Role::Node).is_none(), "a node has a name");
        assert!(owner().narrowed(Role::ControlPlane).is_none());
    }

    #[test]
    fn a_node_is_that_node_and_no_other() {
        let (one, two) = (NodeId::from_u128(1), NodeId::from_u128(2));
        let node = owner().as_node(one).expect("an owner runs nodes");
        assert_eq!((node.name.clone(), node.node()), (one.to_string(), Some(one)));
        assert!(node.acting(CommandKind::Claim).is_some() && node.acting(CommandKind::Stage).is_none());
        assert!(node.clone().as_node(one).is_some() && node.as_node(two).is_none());
    }

    #[test]
    fn the_actor_is_in_the_narrowest_role_that_may() {
        let role = |kind| owner().acting(kind).map(|actor| actor.role);
        assert_eq!(role(CommandKind::Push), Some(Role::Caller));
        assert_eq!(role(CommandKind::Terminate), Some(Role::Orchestrator));
        assert_eq!(role(CommandKind::Claim), None);
        assert_eq!(role(CommandKind::Expire), None);
    }
}
