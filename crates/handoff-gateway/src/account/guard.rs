//! A hold in somebody's hands. However its owner ends, it is closed exactly once.

use std::sync::Arc;

use handoff_protocol::{CallId, NanoUsd};

use super::Account;
use crate::meter::{Record, Settlement};

/// An open hold.
#[derive(Debug)]
pub(crate) struct OpenHold {
    account: Arc<Account>,
    epoch: u64,
    call_id: CallId,
    amount_usd: NanoUsd,
    /// Bytes that have been handed to the upstream's connection, once any may have.
    sent: Option<u64>,
    /// How often the journal had been written anew when it was made.
    compactions: u64,
    closed: bool,
}

impl OpenHold {
    pub(super) fn new(
        account: Arc<Account>,
        epoch: u64,
        call_id: CallId,
        amount_usd: NanoUsd,
        compactions: u64,
    ) -> Self {
        Self { account, epoch, call_id, amount_usd, sent: None, compactions, closed: false }
    }

    /// Who pays.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What is held.
    pub(crate) fn amount_usd(&self) -> NanoUsd {
        self.amount_usd
    }

    /// From here on the upstream may have received the call.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent = Some(bytes);
    }

    /// Nothing reached the upstream after all.
    pub(crate) fn release(mut self) {
        self.sent = None;
        self.close();
    }

    /// The outcome is unknown.
    pub(crate) fn lose(mut self) {
        self.close();
    }

    /// The outcome is known, or estimated.
    pub(crate) fn settle(mut self, settlement: Settlement) {
        self.closed = true;
        let mut inner = self.account.lock();
        match inner.meter.settle(self.epoch, self.call_id, settlement) {
            Ok(records) => inner.keep(&records),
            Err(error) => tracing::error!(call = %self.call_id, %error, "a call was settled twice"),
        }
        drop(inner);
        self.account.changed();
    }

    /// The journal refused the hold: it never was, unless the whole meter was written since, with it in.
    pub(super) fn never_written(mut self) {
        self.closed = true;
        let mut inner = self.account.lock();
        if let Ok(mut records) = inner.meter.release(self.epoch, self.call_id) {
            let written_anew = inner.compactions != self.compactions;
            records.retain(|record| written_anew || !matches!(record, Record::Released { .. }));
            inner.keep(&records);
        }
        drop(inner);
        self.account.changed();
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let mut inner = self.account.lock();
        let outcome = match self.sent {
            Some(bytes) => inner.meter.lose(self.epoch, self.call_id, bytes),
            None => inner.meter.release(self.epoch, self.call_id),
        };
        match outcome {
            Ok(records) => inner.keep(&records),
            Err(error) => tracing::error!(call = %self.call_id, %error, "a hold was closed twice"),
        }
        drop(inner);
        self.account.changed();
    }
}

impl Drop for OpenHold {
    fn drop(&mut self) {
        self.close();
    }
}
