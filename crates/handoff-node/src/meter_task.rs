//! Watches one destination's meter: sends its reports, brings the answers back, and tells the destination what
//! it must know. One writer of reports per destination, so they leave in order.

use std::sync::Arc;
use std::time::Duration;

use handoff_gateway::control::{Acknowledge, DestinationKey, EpochState, Limit, Meter, MeterState};
use handoff_protocol::NanoUsd;
use handoff_protocol::node::{Usage, UsageCommand};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::shared::Shared;
use crate::step_error::StepError;

/// How long one look at the meter waits for a change, in milliseconds.
const LOOK_MS: u64 = 10_000;
/// The pause after a look or a report that failed.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause before a meter that waits for money asks again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What a destination must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeterNews {
    /// The next tick does not fit.
    Dry,
    /// It fits again.
    Solvent,
    /// The gateway was started anew and admits nothing.
    NotAdmitted {
        /// What the epoch could spend, by the gateway's journal.
        limit_usd: NanoUsd,
    },
}

/// The watcher of one destination. Dropping it ends it.
pub(crate) struct MeterTask {
    news: mpsc::Receiver<MeterNews>,
    task: JoinHandle<()>,
}

impl MeterTask {
    /// Watches the meter of this epoch, and sends what is due of older ones. With `dry` the agent stands still
    /// because a tick did not fit, and the first news is that it does, if it does.
    pub(crate) fn start(shared: Arc<Shared>, destination: DestinationKey, epoch: u64, dry: bool) -> Self {
        let (out, news) = mpsc::channel(16);
        let mut watcher = Watcher { shared, destination, epoch, out, dry };
        let task = tokio::spawn(async move { watcher.run().await });
        Self { news, task }
    }

    /// What comes next. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> MeterNews {
        match self.news.recv().await {
            Some(news) => news,
            None => std::future::pending().await,
        }
    }
}

impl Drop for MeterTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Watcher {
    shared: Arc<Shared>,
    destination: DestinationKey,
    epoch: u64,
    out: mpsc::Sender<MeterNews>,
    dry: bool,
}

impl Watcher {
    async fn run(&mut self) {
        let mut after = 0;
        loop {
            let look = Meter { destination: self.destination, after, wait_ms: LOOK_MS };
            match self.shared.gateway.ask(&look).await {
                Ok(state) => {
                    after = state.revision;
                    if let Err(error) = self.seen(&state).await {
                        tracing::warn!(place = %self.destination, %error, "a report waits");
                        after = 0;
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(place = %self.destination, %error, "the meter cannot be read");
                    after = 0;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn seen(&mut self, state: &MeterState) -> Result<(), StepError> {
        let present = state.epochs.iter().find(|epoch| epoch.epoch == self.epoch);
        if let Some(present) = present {
            self.say_whether_dry(present).await;
            if !state.admitted {
                self.say(MeterNews::NotAdmitted { limit_usd: present.limit_usd }).await;
            }
        }
        for epoch in &state.epochs {
            if let Some(report) = &epoch.report {
                self.send(report).await?;
            }
        }
        Ok(())
    }

    async fn say_whether_dry(&mut self, present: &EpochState) {
        if present.exhausted != self.dry {
            self.dry = present.exhausted;
            self.say(if self.dry { MeterNews::Dry } else { MeterNews::Solvent }).await;
        }
    }

    /// The limit goes to the gateway before the acknowledgement: a crash between them sends the report again.
    async fn send(&mut self, report: &Usage) -> Result<(), StepError> {
        let answer = self.shared.client.usage(self.destination.transfer_id, report).await?;
        let (destination, epoch) = (self.destination, report.epoch);
        self.shared.gateway.ask(&Limit { destination, epoch, limit_usd: answer.limit_usd }).await?;
        // What else it answers stands in the list of destinations, with what is to be done about it.
        if report.epoch == self.epoch && answer.command == UsageCommand::Wait {
            tokio::time::sleep(ASK_AGAIN).await;
        }
        let seq = answer.accepted_seq.min(report.seq);
        self.shared.gateway.ask(&Acknowledge { destination, epoch, seq }).await?;
        Ok(())
    }

    async fn say(&self, news: MeterNews) {
        let _ = self.out.send(news).await;
    }
}
