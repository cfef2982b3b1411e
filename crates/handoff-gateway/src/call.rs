//! One call: read what it asks for, hold its maximum, send it, pass the answer back, settle. It runs in a task
//! of its own, and its hold is closed exactly once however that task ends.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use handoff_protocol::totals::Tokens;
use handoff_protocol::{CallId, NanoUsd};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::account::{Account, OpenHold};
use crate::answer::Exchange;
use crate::bid::{Bid, Grant};
use crate::course::{Course, Stopped};
use crate::credential::{Cabinet, Injection};
use crate::in_force::{InForce, Rules};
use crate::meter::{Settlement, UsageKnown};
use crate::policy::{Policy, Upstream};
use crate::refusal::DoorRefusal;
use crate::reply::Reply;
use crate::room::{Room, Rooms};
use crate::scrub::Scrub;
use crate::upstream::{self, NoAnswer};
use crate::wire::Demand;

/// Names the call in the journal.
const CALL_ID: HeaderName = HeaderName::from_static("x-handoff-call-id");
/// The output limit, where it was lowered to what the rest of the budget buys.
const MAX_TOKENS: HeaderName = HeaderName::from_static("x-handoff-max-tokens");

/// What all calls of one destination share.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) account: Arc<Account>,
    pub(crate) in_force: Arc<InForce>,
    pub(crate) rooms: Rooms,
    /// None until credentials were resolved, and after they were wiped.
    pub(crate) cabinet: RwLock<Option<Cabinet>>,
}

/// A call as it came through the door.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) upstream: String,
    /// What it was let in by.
    pub(crate) rules: Arc<Rules>,
    pub(crate) room: Arc<Room>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A call that is priced.
struct Planned {
    demand: Demand,
    bid: Bid,
}

impl Caller {
    /// Makes the call and answers it.
    pub(crate) async fn run(self: Arc<Self>, call: Call, reply: Reply) {
        if let Err(refusal) = self.make(&call, &reply).await {
            tracing::info!(upstream = call.upstream, code = refusal.code().0, "a call was not passed on");
            // Whoever has left does not need the refusal.
            let _ = reply.whole(refusal.response());
        }
    }

    async fn make(&self, call: &Call, reply: &Reply) -> Result<(), DoorRefusal> {
        let Rules { policy, connections } = &*call.rules;
        let upstream = policy.upstream(&call.upstream).ok_or(DoorRefusal::NoUpstream)?;
        let planned = plan(policy, upstream, &call.body)?;
        let call_id = CallId::from(uuid::Uuid::now_v7());
        let (mut hold, grant) = self.account.hold(call_id, &planned.bid).await?;
        if reply.is_gone() {
            hold.release();
            return Ok(());
        }
        let (injected, scrub) = match self.inject(upstream) {
            Ok(injected) => injected,
            Err(refusal) => {
                hold.release();
                return Err(refusal);
            }
        };
        let Planned { demand, bid } = planned;
        let body = upstream.wire.limited(&call.body, &demand, grant.max_tokens, upstream.max_tokens_field);
        let egress_bytes = body.len() as u64;
        let request = upstream::request(upstream, &call.headers, body, hold.epoch(), injected);
        hold.sent(egress_bytes);
        let limits = *policy.limits();
        let mut course = Course::new(reply, limits, Arc::clone(&call.room.drains));
        let sending = connections.send(upstream, request);
        let answer = match course.within(limits.first_byte(), sending).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(NoAnswer::NotSent)) => {
                hold.release();
                return Err(DoorRefusal::Unreachable);
            }
            Ok(Err(NoAnswer::Unknown)) => {
                hold.lose();
                return Err(DoorRefusal::Broken);
            }
            Err(Stopped::TimedOut | Stopped::NotDrained) => {
                hold.lose();
                return Err(DoorRefusal::TimedOut);
            }
        };
        let ticket = Ticket { hold: Some(hold), bid, egress_bytes };
        let headers = answer_headers(answer.headers(), &scrub, call_id, grant);
        Exchange { upstream, demand: &demand, limits, reply, course, ticket, scrub, headers }
            .pass_on(answer)
            .await
    }

    fn inject(&self, upstream: &Upstream) -> Result<(Option<(HeaderName, HeaderValue)>, Scrub), DoorRefusal> {
        let cabinet = self.cabinet.read().unwrap_or_else(PoisonError::into_inner);
        let injection = cabinet.as_ref().and_then(|cabinet| cabinet.injection(upstream));
        let injected = upstream::injected(upstream, injection)
            .map_err(|()| DoorRefusal::NoCredential(upstream.name.clone()))?;
        let secret = injected.as_ref().and(injection).map(Injection::secret);
        Ok((injected, Scrub::new(secret)))
    }
}

fn plan(policy: &Policy, upstream: &Upstream, body: &Bytes) -> Result<Planned, DoorRefusal> {
    let demand = upstream.wire.demand(body)?;
    let unknown =
        || DoorRefusal::PriceUnknown { upstream: upstream.name.clone(), model: demand.model.clone() };
    let price = policy.price(&upstream.name, &demand.model).ok_or_else(unknown)?;
    let limits = policy.limits();
    let bytes = body.len() as u64;
    let bid = Bid::new(price, &demand, bytes, limits.default_max_tokens, limits.floor_max_tokens)
        .map_err(|_| DoorRefusal::NoBound(demand.model.clone()))?;
    Ok(Planned { demand, bid })
}

fn answer_headers(from_upstream: &HeaderMap, scrub: &Scrub, call_id: CallId, grant: Grant) -> HeaderMap {
    let mut headers = upstream::passed_back(from_upstream, scrub);
    let call_id = HeaderValue::from_str(&call_id.to_string()).expect("an id is plain ASCII");
    headers.insert(CALL_ID, call_id);
    if grant.lowered {
        headers.insert(MAX_TOKENS, HeaderValue::from(grant.max_tokens));
    }
    headers
}

/// The hold of a call that was sent, and what is needed to say what it cost.
pub(crate) struct Ticket {
    /// Taken when the call is settled.
    hold: Option<OpenHold>,
    bid: Bid,
    egress_bytes: u64,
}

impl Ticket {
    /// The upstream said what was used.
    pub(crate) fn used(&mut self, tokens: Tokens) {
        self.settle(self.bid.price().cost(&tokens), tokens, UsageKnown::Reported);
    }

    /// The upstream answered and charges nothing.
    pub(crate) fn free(&mut self) {
        self.settle(NanoUsd::ZERO, Tokens::default(), UsageKnown::Reported);
    }

    /// The upstream answered and did not say what was used: all of the input, and what came of the output,
    /// each at one token per byte. Never more than the hold.
    pub(crate) fn estimated(&mut self, output_bytes: u64) {
        let tokens = Tokens { input: self.bid.input(), output: output_bytes, ..Tokens::default() };
        let most = self.hold.as_ref().map_or(NanoUsd::ZERO, OpenHold::amount_usd);
        self.settle(self.bid.price().cost(&tokens).min(most), tokens, UsageKnown::Unknown);
    }

    /// The outcome is unknown.
    pub(crate) fn lost(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.lose();
        }
    }

    fn settle(&mut self, cost_usd: NanoUsd, tokens: Tokens, usage: UsageKnown) {
        if let Some(hold) = self.hold.take() {
            hold.settle(Settlement { cost_usd, tokens, egress_bytes: self.egress_bytes, usage });
        }
    }
}

/// An answer of ours around bytes of the upstream's.
pub(crate) fn answered(status: StatusCode, headers: HeaderMap, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Whether an answer comes as events.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("text/event-stream")
}
