//! The way back: the answer is passed on, and what it says settles the hold.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header, response};
use reqwest::Response;

use crate::call::{Ticket, answered, is_stream};
use crate::course::{Course, Stopped};
use crate::policy::{Limits, Upstream};
use crate::refusal::DoorRefusal;
use crate::reply::Reply;
use crate::scrub::Scrub;
use crate::stream::StreamMeter;
use crate::wire::Demand;

/// A call whose answer has begun.
pub(crate) struct Exchange<'c> {
    pub(crate) upstream: &'c Upstream,
    pub(crate) demand: &'c Demand,
    pub(crate) limits: Limits,
    pub(crate) reply: &'c Reply,
    pub(crate) course: Course<'c>,
    pub(crate) ticket: Ticket,
    pub(crate) scrub: Scrub,
    pub(crate) headers: HeaderMap,
}

/// Why a body did not come to its end.
enum Incomplete {
    TimedOut,
    BrokeOff,
    TooLong,
}

impl Exchange<'_> {
    /// Passes the answer on. The hold is closed before the caller can see the end.
    pub(crate) async fn pass_on(mut self, answer: Response) -> Result<(), DoorRefusal> {
        let status = answer.status();
        let encoding = answer.headers().get(header::CONTENT_ENCODING);
        if encoding.is_some_and(|encoding| encoding != "identity") {
            self.ticket.lost();
            return Err(DoorRefusal::BadAnswer("it is compressed"));
        }
        if status.is_redirection() || status.is_informational() {
            self.ticket.free();
            return Err(DoorRefusal::BadAnswer("redirects are not followed"));
        }
        if status.is_success() && is_stream(answer.headers()) {
            self.stream(status, answer).await
        } else {
            self.whole(status, answer).await
        }
    }

    async fn whole(mut self, status: StatusCode, answer: Response) -> Result<(), DoorRefusal> {
        let body = match self.collect(answer).await {
            Ok(body) => body,
            Err(incomplete) => {
                self.incomplete(status);
                return Err(match incomplete {
                    Incomplete::TimedOut => DoorRefusal::TimedOut,
                    Incomplete::BrokeOff => DoorRefusal::Broken,
                    Incomplete::TooLong => DoorRefusal::BadAnswer("it is too long"),
                });
            }
        };
        match self.upstream.wire.usage(&body) {
            Some(tokens) => self.ticket.used(tokens),
            None if status.is_success() => self.ticket.estimated(body.len() as u64),
            None => self.incomplete(status),
        }
        let body = self.scrub.whole(body);
        // A caller that has left was charged like any other.
        let _ = self.reply.whole(answered(status, self.headers, body));
        Ok(())
    }

    /// An upstream that refuses does not charge. One that says it ran out of time may have worked on.
    fn incomplete(&mut self, status: StatusCode) {
        let ran_out_of_time = matches!(status.as_u16(), 408 | 504 | 524);
        if status.is_success() || ran_out_of_time { self.ticket.lost() } else { self.ticket.free() }
    }

    async fn collect(&mut self, mut answer: Response) -> Result<Bytes, Incomplete> {
        let mut body = BytesMut::new();
        loop {
            let next = self.course.within(self.limits.idle(), answer.chunk()).await;
            match next {
                Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes),
                Ok(Ok(None)) => return Ok(body.freeze()),
                Ok(Err(_)) => return Err(Incomplete::BrokeOff),
                Err(Stopped::TimedOut | Stopped::NotDrained) => return Err(Incomplete::TimedOut),
            }
            if body.len() > self.limits.answer_bytes {
                return Err(Incomplete::TooLong);
            }
        }
    }

    async fn stream(mut self, status: StatusCode, mut answer: Response) -> Result<(), DoorRefusal> {
        let strips = self.demand.stream && !self.demand.wants_usage;
        let mut meter = StreamMeter::new(self.upstream.wire, strips, self.limits.answer_bytes);
        // A caller that has left is noticed at the next step, and charged like any other.
        let _ = self.reply.head(self.head(status));
        match self.relay(&mut meter, &mut answer).await {
            Ok(()) => {
                let held_back = self.scrub.finish();
                let rest = meter.pass(held_back).unwrap_or_default();
                self.complete(&meter);
                let _ = self.forward(rest).await;
                let _ = self.forward(meter.finish()).await;
                let _ = self.reply.end();
            }
            // What it has said counts, else the estimate, never zero. The caller sees it break off.
            Err(Incomplete::BrokeOff | Incomplete::TooLong) => self.complete(&meter),
            // Nothing is known of what the upstream does now, unless it has said what it used.
            Err(Incomplete::TimedOut) => match meter.usage() {
                Some(tokens) => self.ticket.used(tokens),
                None => self.ticket.lost(),
            },
        }
        Ok(())
    }

    async fn relay(&mut self, meter: &mut StreamMeter, answer: &mut Response) -> Result<(), Incomplete> {
        loop {
            let next = self.course.within(self.limits.idle(), answer.chunk()).await;
            let bytes = match next {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(_)) => return Err(Incomplete::BrokeOff),
                Err(Stopped::TimedOut | Stopped::NotDrained) => return Err(Incomplete::TimedOut),
            };
            let bytes = meter.pass(self.scrub.pass(bytes)).map_err(|_| Incomplete::TooLong)?;
            if meter.is_done() {
                // Before the caller can see the end: what it does next finds the money back.
                self.complete(meter);
            }
            self.forward(bytes).await.map_err(|_| Incomplete::TimedOut)?;
        }
    }

    fn head(&mut self, status: StatusCode) -> response::Parts {
        let headers = std::mem::take(&mut self.headers);
        answered(status, headers, Bytes::new()).into_parts().0
    }

    /// Bytes go on to the caller. One that does not take them is left behind, like one that has left.
    async fn forward(&mut self, bytes: Bytes) -> Result<(), Stopped> {
        if self.course.is_abandoned() {
            return Ok(());
        }
        match tokio::time::timeout(self.limits.idle(), self.reply.data(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => self.course.abandoned(),
        }
    }

    /// The stream came to its end.
    fn complete(&mut self, meter: &StreamMeter) {
        match meter.usage() {
            Some(tokens) => self.ticket.used(tokens),
            None => self.ticket.estimated(meter.output_bytes()),
        }
    }
}
