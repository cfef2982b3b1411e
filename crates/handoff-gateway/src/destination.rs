//! One destination at this gateway: its ledger from the first `open` to `remove`, its door while it is open.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use handoff_protocol::reference::CredentialRef;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::account::Account;
use crate::call::Caller;
use crate::clock::Clock;
use crate::credential::Cabinet;
use crate::descriptors::Descriptors;
use crate::door::{Access, Door};
use crate::in_force::InForce;
use crate::journal::{self, FileDisk, Journal, JournalError};
use crate::meter::{Meter, Record, Terms, Unfitting};
use crate::room::Rooms;
use crate::socket;

/// The socket's name in a door's folder.
pub(crate) const DOOR_SOCKET: &str = "gateway.sock";
/// Open to all who can enter the folder: the agent runs under another user id.
const DOOR_MODE: u32 = 0o666;

/// What all destinations of a gateway share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) in_force: Arc<InForce>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) tasks: TaskTracker,
}

/// One destination.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) account: Arc<Account>,
    pub(crate) caller: Arc<Caller>,
    opened: Mutex<Option<Opened>>,
    ticker: CancellationToken,
}

#[derive(Debug)]
struct Opened {
    door: Arc<Door>,
    closing: CancellationToken,
    references: Vec<CredentialRef>,
}

/// Why a ledger cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LedgerError {
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal is not one of this program's.
    #[error(transparent)]
    Unfitting(#[from] Unfitting),
}

impl Destination {
    /// The ledger at `path` with all that it knew, if there is one.
    pub(crate) fn reopen(path: &Path, shared: &Shared) -> Result<Option<Self>, LedgerError> {
        let (records, disk) = journal::open(path)?;
        let Some(mut meter) = Meter::replay(&records)? else { return Ok(None) };
        let journal = Journal::start(Box::new(disk));
        journal.append(&meter.recover());
        Ok(Some(Self::new(meter, journal, shared)))
    }

    /// A new ledger at `path`, durable.
    pub(crate) async fn create(path: &Path, terms: Terms, shared: &Shared) -> Result<Self, LedgerError> {
        let (meter, opened) = Meter::open(terms);
        let (_, disk): (Vec<Record>, FileDisk) = journal::open(path)?;
        let journal = Journal::start(Box::new(disk));
        let durable = journal.append_durably(&[opened]);
        durable.await.unwrap_or_else(|_| Err(JournalError::ended()))?;
        Ok(Self::new(meter, journal, shared))
    }

    fn new(meter: Meter, journal: Journal, shared: &Shared) -> Self {
        let account = Arc::new(Account::new(Arc::clone(&shared.clock), meter, journal));
        let caller = Caller {
            account: Arc::clone(&account),
            in_force: Arc::clone(&shared.in_force),
            rooms: Rooms::new(shared.in_force.rules().policy.limits()),
            cabinet: RwLock::new(None),
        };
        let ticker = CancellationToken::new();
        tokio::spawn(tick(Arc::clone(&account), ticker.clone()));
        Self { account, caller: Arc::new(caller), opened: Mutex::new(None), ticker }
    }

    /// Binds the door, or binds it anew. Calls that are under way go on.
    pub(crate) fn open(
        &self,
        folder: &Path,
        access: Access,
        references: Vec<CredentialRef>,
        shared: &Shared,
    ) -> io::Result<()> {
        let listener = socket::listen(&folder.join(DOOR_SOCKET), DOOR_MODE)?;
        let door = Arc::new(Door {
            access: RwLock::new(access),
            caller: Arc::clone(&self.caller),
            descriptors: shared.descriptors.share(),
            tasks: shared.tasks.clone(),
        });
        let closing = CancellationToken::new();
        tokio::spawn(Arc::clone(&door).serve(listener, closing.clone()));
        self.put(Some(Opened { door, closing, references }));
        Ok(())
    }

    /// Whether the door is bound.
    pub(crate) fn is_open(&self) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// What the session's own configuration refers to, and the upstreams it names.
    pub(crate) fn needs(&self) -> (Vec<CredentialRef>, Vec<String>) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(opened) = opened.as_ref() else { return Default::default() };
        let access = opened.door.access.read().unwrap_or_else(PoisonError::into_inner);
        (opened.references.clone(), access.upstreams.clone())
    }

    /// Puts resolved credentials in the place of others, which are wiped.
    pub(crate) fn furnish(&self, cabinet: Cabinet) {
        *self.caller.cabinet.write().unwrap_or_else(PoisonError::into_inner) = Some(cabinet);
    }

    /// Whether credentials were resolved for it.
    pub(crate) fn is_furnished(&self) -> bool {
        self.caller.cabinet.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Puts other credentials in the place of those that it has; one that has been shut meanwhile gets none.
    pub(crate) fn refurnish(&self, cabinet: Cabinet) {
        let mut place = self.caller.cabinet.write().unwrap_or_else(PoisonError::into_inner);
        if place.is_some() {
            *place = Some(cabinet);
        }
    }

    /// Unbinds the door and wipes the credentials.
    pub(crate) fn shut(&self) {
        self.put(None);
        *self.caller.cabinet.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn put(&self, opened: Option<Opened>) {
        let mut place = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = std::mem::replace(&mut *place, opened) {
            before.closing.cancel();
        }
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        self.shut();
        self.ticker.cancel();
    }
}

/// Counts time and reserves ticks, whenever the meter says that it is due.
async fn tick(account: Arc<Account>, ended: CancellationToken) {
    let mut changed = account.subscribe();
    let clock = Arc::clone(account.clock());
    loop {
        changed.mark_unchanged();
        let due = account.next_tick_ms();
        let wait = async {
            match due {
                Some(due) => clock.wait_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ended.cancelled() => return,
            _ = changed.changed() => {}
            () = wait => account.tick(),
        }
    }
}
