//! What the meter has to know of a wire format: what a request asks for, how to limit it without re-encoding
//! it, and where the answer says what was used. A further format is a further variant here.

mod chat;
mod chat_answer;
mod fields;

use bytes::Bytes;
use handoff_protocol::totals::Tokens;
use serde::Deserialize;

use crate::policy::MaxTokensField;

pub(crate) use chat_answer::ChatStream;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum Wire {
    /// OpenAI Chat Completions, as served by OpenAI and many others: `POST /v1/chat/completions`
    /// (platform.openai.com/docs/api-reference/chat).
    #[serde(rename = "openai-chat")]
    OpenAiChat,
}

/// What a request asks for, as far as it can cost something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The model.
    pub(crate) model: String,
    /// The answer comes as events.
    pub(crate) stream: bool,
    /// The caller itself asked for the usage of a stream.
    pub(crate) wants_usage: bool,
    /// The most output tokens of one choice that the caller allows.
    pub(crate) max_tokens: Option<u64>,
    /// Choices that are produced, each with its own output.
    pub(crate) choices: u64,
    /// Tokens that may be charged as output beside the limit.
    pub(crate) extra_output: u64,
    /// Images, files and sounds.
    pub(crate) attachments: u64,
}

/// Why a request cannot be metered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidDemand {
    /// Not JSON, too deep, or a key twice.
    #[error(transparent)]
    Json(#[from] handoff_protocol::json::InvalidJson),
    /// A field is missing or impossible.
    #[error("{field}: {problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
    /// A field has a price of its own, which is not known here.
    #[error("'{0}' is not metered here, so it cannot be passed on")]
    Unmetered(String),
}

/// One event of a stream, as the meter sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Event {
    /// What was used so far, if the event says so.
    pub(crate) usage: Option<Tokens>,
    /// The event carries nothing but usage: it is there only because the gateway asked for it.
    pub(crate) only_usage: bool,
}

impl Wire {
    /// The only path that calls may take.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::OpenAiChat => "/v1/chat/completions",
        }
    }

    /// Reads what a request asks for.
    pub(crate) fn demand(self, body: &[u8]) -> Result<Demand, InvalidDemand> {
        match self {
            Self::OpenAiChat => chat::demand(body),
        }
    }

    /// The request with its output limited to `max_tokens`, and with usage asked for if it is streamed. Every
    /// byte that has not to change stays.
    pub(crate) fn limited(
        self,
        body: &Bytes,
        demand: &Demand,
        max_tokens: u64,
        field: MaxTokensField,
    ) -> Bytes {
        match self {
            Self::OpenAiChat => chat::limited(body, demand, max_tokens, field),
        }
    }

    /// What an answer that was not streamed says was used.
    pub(crate) fn usage(self, answer: &[u8]) -> Option<Tokens> {
        match self {
            Self::OpenAiChat => chat_answer::usage(answer),
        }
    }

    /// A reader for the events of one stream.
    pub(crate) fn stream(self) -> ChatStream {
        match self {
            Self::OpenAiChat => ChatStream::default(),
        }
    }
}
