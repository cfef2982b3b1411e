//! How many durable reports per second the embedded store takes from callers that each wait for their answer.
//!
//! ```text
//! store_bench FILE [SECONDS] [CALLERS]
//! ```
//!
//! Its floor is `bench/floors/sqlite_bench.c` on the same disk: rows `FULL batch 1` (one caller) and
//! `FULL batch 100`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use handoff_core::Policy;
use handoff_core::ledger::Ledger;
use handoff_store::{OpenOptions, SqliteLedger};
use handoff_testkit::clock::ManualClock;
use handoff_testkit::contract::{Move, Store, World};

struct File(PathBuf);

#[async_trait]
impl Store for File {
    async fn open(&mut self, policy: Policy, clock: &ManualClock) -> Arc<dyn Ledger> {
        let options = OpenOptions { clock: Arc::new(clock.reader()), ..OpenOptions::default() };
        Arc::new(SqliteLedger::open(&self.0, policy, options).expect("the store opens"))
    }

    fn is_durable(&self) -> bool {
        true
    }
}

/// Reports of one transfer, one after the other, until the time is over.
async fn reports(world: Arc<World>, moved: Move, until: Instant, done: Arc<AtomicU64>) -> Vec<Duration> {
    let ledger = world.ledger();
    let mut waited = Vec::new();
    for seq in 1.. {
        let spent = i64::try_from(seq).expect("a short bench");
        let report = world.envelope(moved.report(seq, spent).send());
        let began = Instant::now();
        if began >= until {
            break;
        }
        ledger.apply(vec![report]).await.remove(0).expect("it is accepted");
        waited.push(began.elapsed());
        done.fetch_add(1, Ordering::Relaxed);
    }
    waited
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |place: usize, default: u64| words.get(place).and_then(|word| word.parse().ok()).unwrap_or(default);
    let path = words.first().map_or_else(|| std::env::temp_dir().join("store_bench.db"), PathBuf::from);
    let (seconds, callers) = (number(1, 3), number(2, 64));
    let world = Arc::new(World::start(Box::new(File(path))).await);
    let mut moves = Vec::new();
    for _ in 0..callers {
        moves.push(world.active().await);
    }
    let done = Arc::new(AtomicU64::new(0));
    let (began, cpu) = (Instant::now(), cpu_time());
    let until = began + Duration::from_secs(seconds);
    let tasks = moves
        .into_iter()
        .map(|moved| tokio::spawn(reports(Arc::clone(&world), moved, until, Arc::clone(&done))));
    let mut waited = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        waited.extend(task.await.expect("a caller ends well"));
    }
    waited.sort();
    let (elapsed, cpu) = (began.elapsed(), cpu_time() - cpu);
    let count = waited.len().max(1);
    let rate = count as u128 * 1_000_000 / elapsed.as_micros().max(1);
    let each = cpu.as_micros() / count as u128;
    let (middle, late) = (waited[count / 2].as_micros(), waited[count * 99 / 100].as_micros());
    writeln!(
        std::io::stdout(),
        "sqlite FULL callers {callers} reports/s {rate} p50us {middle} p99us {late} cpu_us_per_report {each}"
    )
}

/// What this process has used of the processors.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}
