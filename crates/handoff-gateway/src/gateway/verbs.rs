//! What a node can ask of a gateway, verb by verb. Every one may be said again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use handoff_protocol::{ErrorCode, Problem};

use super::Gateway;
use crate::account::AccountRefusal;
use crate::control::{
    Acknowledge, Admit, AskPolicy, CheckReferences, Close, Closed, DestinationKey, Done, Lease, Limit, List,
    Listed, ListedDestination, Meter, MeterState, Missing, Open, PolicyInForce, Remove, Resolve, Stand,
};
use crate::credential::{self, Cabinet};
use crate::destination::{Destination, LedgerError};
use crate::door::Access;
use crate::journal::JournalError;
use crate::meter::{MeterRefusal, Terms};

/// Nobody is kept waiting longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const DONE: Done = Done { done: true };

impl Gateway {
    pub(super) async fn open(&self, ask: Open) -> Result<Done, Problem> {
        if ask.tick_ms == 0 {
            return Err(invalid("tick_ms is at least 1"));
        }
        let rules = self.shared.in_force.rules();
        if let Some(unknown) = ask.upstreams.iter().find(|name| rules.policy.upstream(name).is_none()) {
            return Err(invalid(&format!("the policy has no upstream '{unknown}'")));
        }
        let _one_at_a_time = self.housekeeping.lock().await;
        let Open { destination: key, tier, tick_ms, grace_ms, wind_down_usd, .. } = ask;
        let terms = Terms { tier, tick_ms, grace_ms, wind_down_usd };
        let known = self.destinations().get(&key).cloned();
        let destination = match known {
            Some(destination) => {
                destination.account.revise(terms).await.map_err(|refusal| refused(key, refusal))?;
                destination
            }
            None => self.new_destination(key, terms).await?,
        };
        let access = Access { agent_token_digest: ask.agent_token_digest, upstreams: ask.upstreams };
        destination.open(&ask.door_dir, access, ask.references, &self.shared).map_err(|error| {
            let what = format!("the door in {} cannot be bound: {error}", ask.door_dir.display());
            Problem::new(ErrorCode::Internal, what, "look at the folder").of_transfer(key.transfer_id)
        })?;
        Ok(DONE)
    }

    async fn new_destination(&self, key: DestinationKey, terms: Terms) -> Result<Arc<Destination>, Problem> {
        let path = self.ledger(key);
        let failed = |error: LedgerError| match error {
            LedgerError::Journal(error) => journal_problem(&error).of_transfer(key.transfer_id),
            LedgerError::Unfitting(error) => Problem::new(
                ErrorCode::Internal,
                error.to_string(),
                "keep the journal for whoever looks into it",
            )
            .of_transfer(key.transfer_id),
        };
        // A ledger that could not be read at the start may be readable now.
        let destination = match Destination::reopen(&path, &self.shared).map_err(failed)? {
            Some(destination) => {
                destination.account.revise(terms).await.map_err(|refusal| refused(key, refusal))?;
                destination
            }
            None => Destination::create(&path, terms, &self.shared).await.map_err(failed)?,
        };
        let destination = Arc::new(destination);
        self.destinations().insert(key, Arc::clone(&destination));
        Ok(destination)
    }

    pub(super) async fn check_references(&self, ask: CheckReferences) -> Result<Missing, Problem> {
        let (resolver, rules) = (self.resolver.clone(), self.shared.in_force.rules());
        let missing =
            blocking(move || credential::missing(&resolver, &rules.policy, &ask.references)).await?;
        Ok(Missing { missing })
    }

    pub(super) async fn resolve(&self, ask: Resolve) -> Result<Missing, Problem> {
        let destination = self.find(ask.destination)?;
        let (references, upstreams) = destination.needs();
        let _policy_stays = self.taking_up.read().await;
        let (resolver, rules) = (self.resolver.clone(), self.shared.in_force.rules());
        let (cabinet, missing) =
            blocking(move || Cabinet::fill(&resolver, &rules.policy, &references, &upstreams)).await?;
        if missing.is_empty() {
            destination.furnish(cabinet);
            return Ok(Missing { missing });
        }
        let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
        let what = format!("not resolved here: {}", missing.join(", "));
        let hint = "add them to this node's stores, or move to a node that has them";
        let problem = Problem::new(ErrorCode::CredentialUnresolved, what, hint);
        Err(problem.of_transfer(ask.destination.transfer_id))
    }

    pub(super) async fn admit(&self, ask: Admit) -> Result<Done, Problem> {
        let destination = self.find(ask.destination)?;
        if !destination.is_open() {
            let what = "the destination has no door since the gateway started";
            let problem = Problem::new(ErrorCode::PreconditionFailed, what, "open and resolve it first");
            return Err(problem.of_transfer(ask.destination.transfer_id));
        }
        let Admit { epoch, incarnation, limit_usd, run_until_boot_ms, boot_id, destination: key } = ask;
        let admitted =
            destination.account.admit(epoch, incarnation, limit_usd, run_until_boot_ms, &boot_id).await;
        done(key, admitted)
    }

    pub(super) fn lease(&self, ask: &Lease) -> Result<Done, Problem> {
        let account = &self.find(ask.destination)?.account;
        done(ask.destination, account.lease(ask.epoch, ask.run_until_boot_ms, &ask.boot_id))
    }

    pub(super) async fn limit(&self, ask: Limit) -> Result<Done, Problem> {
        let destination = self.find(ask.destination)?;
        done(ask.destination, destination.account.raise_limit(ask.epoch, ask.limit_usd).await)
    }

    pub(super) async fn stand(&self, ask: Stand) -> Result<Done, Problem> {
        let destination = self.find(ask.destination)?;
        done(ask.destination, destination.account.stand(ask.mode).await)
    }

    pub(super) async fn meter(&self, ask: Meter) -> Result<MeterState, Problem> {
        let destination = self.find(ask.destination)?;
        Ok(destination.account.state(ask.after, wait(ask.wait_ms)).await)
    }

    pub(super) fn acknowledge(&self, ask: Acknowledge) -> Result<Done, Problem> {
        let destination = self.find(ask.destination)?;
        done(ask.destination, destination.account.acknowledge(ask.epoch, ask.seq))
    }

    pub(super) async fn close(&self, ask: Close) -> Result<Closed, Problem> {
        let key = ask.destination;
        let account = Arc::clone(&self.find(key)?.account);
        let mut changed = account.subscribe();
        account.begin_close(ask.epoch, ask.at_boot_ms).await.map_err(|refusal| refused(key, refusal))?;
        let over = changed.wait_for(|_| account.has_no_open_hold(ask.epoch));
        // A time-out is an answer too: what is there so far.
        let _ = tokio::time::timeout(wait(ask.wait_ms), over).await;
        let reports = account.unacknowledged(ask.epoch).await;
        let reports = reports.map_err(|error| journal_problem(&error).of_transfer(key.transfer_id))?;
        Ok(Closed { closed: account.is_closed(ask.epoch), reports })
    }

    pub(super) async fn remove(&self, ask: Remove) -> Result<Done, Problem> {
        let _one_at_a_time = self.housekeeping.lock().await;
        let key = ask.destination;
        let known = self.destinations().get(&key).cloned();
        let unfinished = match &known {
            Some(destination) => {
                destination.shut();
                destination.account.unfinished()
            }
            None => Vec::new(),
        };
        if !unfinished.is_empty() && !ask.written_off {
            let epochs: Vec<_> = unfinished.iter().map(u64::to_string).collect();
            let what = format!("not closed and acknowledged: epoch {}", epochs.join(", "));
            let hint = "close it, send its reports and acknowledge them; or say that it is written off";
            return Err(Problem::new(ErrorCode::PreconditionFailed, what, hint).of_transfer(key.transfer_id));
        }
        self.destinations().remove(&key);
        let path = self.ledger(key);
        let forgotten = blocking(move || crate::journal::forget(&path)).await?;
        forgotten.map_err(|error| journal_problem(&error).of_transfer(key.transfer_id))?;
        Ok(DONE)
    }

    pub(super) fn policy_in_force(&self, _: AskPolicy) -> PolicyInForce {
        PolicyInForce { digest: self.shared.in_force.rules().policy.digest() }
    }

    pub(super) fn list(&self, _: List) -> Listed {
        let view = |(key, destination): (&DestinationKey, &Arc<Destination>)| ListedDestination {
            destination: *key,
            open: destination.is_open(),
            spent_usd: destination.account.spent().into_iter().collect::<BTreeMap<_, _>>(),
        };
        Listed { destinations: self.destinations().iter().map(view).collect() }
    }

    fn find(&self, key: DestinationKey) -> Result<Arc<Destination>, Problem> {
        self.destinations().get(&key).cloned().ok_or_else(|| {
            let what = format!("the gateway has no destination {key}");
            Problem::new(ErrorCode::NotFound, what, "open it first").of_transfer(key.transfer_id)
        })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a task of the gateway ended");
        Problem::new(ErrorCode::Internal, "a task of the gateway ended", "say it again")
    })
}

fn wait(ms: u64) -> Duration {
    Duration::from_millis(ms).min(LONGEST_WAIT)
}

fn invalid(what: &str) -> Problem {
    Problem::new(ErrorCode::InvalidArgument, what, "see the control socket's documentation")
}

fn done(key: DestinationKey, outcome: Result<(), AccountRefusal>) -> Result<Done, Problem> {
    outcome.map(|()| DONE).map_err(|refusal| refused(key, refusal))
}

fn journal_problem(error: &JournalError) -> Problem {
    let code = match error {
        JournalError::Full => ErrorCode::StorageFull,
        JournalError::Foreign | JournalError::Unknown(_) => ErrorCode::VersionUnsupported,
        JournalError::Io(_) => ErrorCode::StoreUnavailable,
    };
    Problem::new(code, error.to_string(), "make room or mend the disk under the gateway's home")
}

fn refused(key: DestinationKey, refusal: AccountRefusal) -> Problem {
    let what = refusal.to_string();
    let problem = match refusal {
        AccountRefusal::Journal(error) => journal_problem(&error),
        AccountRefusal::OtherBoot => {
            Problem::new(ErrorCode::LeaseOver, what, "a lease does not outlive a boot; claim again")
        }
        AccountRefusal::NotAdmitted => {
            Problem::new(ErrorCode::LeaseOver, what, "open, resolve and admit the destination again")
        }
        AccountRefusal::Meter(refusal) => match refusal {
            MeterRefusal::StaleEpoch { .. } | MeterRefusal::OtherIncarnation { .. } => {
                Problem::new(ErrorCode::StaleEpoch, what, "claim again for a new epoch")
            }
            MeterRefusal::OtherTerms => {
                Problem::new(ErrorCode::IdempotencyConflict, what, "tier and tick stay for a generation")
            }
            MeterRefusal::Exceeded { .. } => {
                Problem::new(ErrorCode::BudgetExceeded, what, "raise the budget")
            }
            MeterRefusal::NotOpen | MeterRefusal::NoSuchReport { .. } => invalid(&what),
        },
    };
    problem.of_transfer(key.transfer_id)
}
