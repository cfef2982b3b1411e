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
    Push = "push", by [Caller, Orchestrator], from [Provisioned, Pushed], event None;
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

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use handoff_protocol::ErrorCode;

    use super::*;
    use crate::decide;
    use crate::fact::Record;
    use crate::machine::world::{MINUTE, ONE, TWO, World};

    const GOLDEN: &str = include_str!("../tests/golden/grid.txt");

    /// A world in this status in which nothing but the status can stand in the command's way.
    fn ready(status: Status, kind: CommandKind) -> World {
        let world = World::in_status(status);
        match kind {
            CommandKind::Receipt if status == Provisioned => {
                let mut world = world;
                world.give(world.command(CommandKind::Push, ONE));
                world
            }
            CommandKind::Decline | CommandKind::Withdraw | CommandKind::Claim if status == Pushed => {
                World::authorized()
            }
            CommandKind::Rest if status == Active => {
                let mut world = world;
                world.give(world.report(|usage| usage.closing = true));
                world
            }
            CommandKind::Wake if status == Active => World::resting(),
            CommandKind::Reassign => world.silent(2 * MINUTE),
            CommandKind::Expire => world.later(30 * MINUTE),
            CommandKind::Reclaim | CommandKind::WriteOff => world.later(MINUTE),
            CommandKind::Stage
            | CommandKind::Refresh
            | CommandKind::Provision
            | CommandKind::Push
            | CommandKind::Receipt
            | CommandKind::Activate
            | CommandKind::Decline
            | CommandKind::Withdraw
            | CommandKind::Claim
            | CommandKind::Renew
            | CommandKind::Checkpoint
            | CommandKind::Rest
            | CommandKind::Wake
            | CommandKind::ReportUsage
            | CommandKind::RecordSpend
            | CommandKind::RaiseBudget
            | CommandKind::Terminate
            | CommandKind::Return
            | CommandKind::AbandonSource
            | CommandKind::Observe => world,
        }
    }

    /// Where the command leads, or why not.
    fn outcome(status: Status, kind: CommandKind) -> Result<Status, ErrorCode> {
        let mut world = ready(status, kind);
        let command = world.command(kind, ONE);
        let decided = decide(&world.policy, &world.state, &command, world.now);
        decided.map_err(|refusal| refusal.code())?;
        let (facts, _) = world.make(command);
        let events = facts.iter().filter_map(|fact| match fact.record() {
            Record::Event(event) => Some(event),
            Record::Audit(_) | Record::Bookkeeping => None,
        });
        for event in events {
            // A raise writes one only where it ends insolvency.
            let raised = kind == CommandKind::RaiseBudget && status == Insolvent;
            let expected = if raised { Some(EventType::Activated) } else { kind.event() };
            assert_eq!(Some(event), expected, "{kind} from {status}");
        }
        Ok(world.status(if kind == CommandKind::Stage { TWO } else { ONE }))
    }

    /// H-2, H-4
    #[test]
    fn every_status_answers_every_command_as_the_golden_table_says() {
        let mut table = String::new();
        for kind in CommandKind::ALL {
            for status in Status::ALL {
                let answer = match outcome(status, *kind) {
                    Ok(next) => format!("→ {next}"),
                    Err(code) => code.as_str().to_owned(),
                };
                writeln!(table, "{kind:<15}{status:<13}{answer}").expect("a string grows");
            }
        }
        assert_eq!(table, GOLDEN, "the table is now:\n{table}");
    }

    /// The only commands of a legal status that no world can make well: a staged transfer has no node that could
    /// find anything.
    const LEGAL_BUT_EMPTY: &[(Status, CommandKind)] = &[(Staged, CommandKind::Observe)];

    #[test]
    fn the_machine_accepts_exactly_what_the_grid_allows() {
        for kind in CommandKind::ALL.iter().filter(|kind| !kind.legal_from().is_empty()) {
            for status in Status::ALL {
                let legal =
                    kind.legal_from().contains(&status) && !LEGAL_BUT_EMPTY.contains(&(status, *kind));
                match outcome(status, *kind) {
                    Ok(_) => assert!(legal, "{kind} is accepted from {status}"),
                    Err(code) => assert!(!legal, "{kind} is refused from {status}: {code:?}"),
                }
                let by_status = outcome(status, *kind) == Err(ErrorCode::WrongStatus);
                let names_a_session = *kind == CommandKind::Wake;
                assert!(
                    names_a_session || by_status != kind.legal_from().contains(&status),
                    "{kind}, {status}"
                );
            }
        }
    }

    #[test]
    fn commands_about_the_session_are_refused_while_a_transfer_stands_in_their_way() {
        for (kind, accepted) in [
            (CommandKind::Stage, &[Active, Insolvent, Terminated, Expired][..]),
            (CommandKind::Return, &[Expired]),
            (CommandKind::AbandonSource, &[Expired]),
        ] {
            let found: Vec<Status> =
                Status::ALL.into_iter().filter(|status| outcome(*status, kind).is_ok()).collect();
            assert_eq!(found, accepted, "{kind}");
        }
    }

    /// H-1
    #[test]
    fn nobody_gives_a_command_that_is_not_theirs() {
        let roles = |kind: CommandKind| {
            let all = [
                Role::Source,
                Role::Caller,
                Role::Orchestrator,
                Role::Node,
                Role::Viewer,
                Role::ControlPlane,
            ];
            all.into_iter().filter(|role| kind.permits(*role)).collect::<Vec<_>>()
        };
        assert_eq!(roles(CommandKind::Terminate), [Role::Orchestrator, Role::ControlPlane]);
        assert_eq!(roles(CommandKind::RaiseBudget), [Role::Orchestrator]);
        assert_eq!(roles(CommandKind::Provision), [Role::Caller, Role::Orchestrator]);
        assert_eq!(roles(CommandKind::Claim), [Role::Node]);
        for kind in CommandKind::ALL {
            assert!(!kind.permits(Role::Viewer), "{kind}");
            let by_people = roles(*kind).iter().any(|role| !matches!(role, Role::Node | Role::ControlPlane));
            assert_eq!(kind.permits(Role::Admin), by_people, "{kind}");
        }
    }
}
