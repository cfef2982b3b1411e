//! A Chat Completions request as it arrives: borrowed from its bytes, so that a message is what was sent.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

macro_rules! chat_request {
    ($($ignored:ident),* $(,)?) => {
        /// A request's body. A parameter outside the wire format is refused, as the real API does; the list
        /// is the one of the public API reference of `POST /v1/chat/completions`.
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct ChatRequest<'b> {
            #[serde(borrow)]
            pub(crate) model: Cow<'b, str>,
            #[serde(borrow)]
            pub(crate) messages: Vec<&'b RawValue>,
            #[serde(default)]
            pub(crate) stream: Option<bool>,
            #[serde(default)]
            pub(crate) stream_options: Option<StreamOptions>,
            #[serde(default, borrow)]
            pub(crate) tools: Option<Vec<&'b RawValue>>,
            #[serde(default)]
            pub(crate) max_tokens: Option<u64>,
            #[serde(default)]
            pub(crate) max_completion_tokens: Option<u64>,
            $(
                #[serde(default)]
                #[expect(dead_code, reason = "known to the wire format, without meaning for a script")]
                $ignored: Option<IgnoredAny>,
            )*
        }
    };
}

chat_request! {
    audio, frequency_penalty, function_call, functions, logit_bias, logprobs, metadata, modalities, n,
    parallel_tool_calls, prediction, presence_penalty, prompt_cache_key, prompt_cache_retention,
    reasoning_effort, response_format, safety_identifier, seed, service_tier, stop, store, temperature,
    tool_choice, top_logprobs, top_p, user, verbosity, web_search_options,
}

/// How a stream ends.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    pub(crate) include_usage: bool,
    #[serde(default)]
    #[expect(dead_code, reason = "known to the wire format, without meaning for a script")]
    include_obfuscation: Option<bool>,
}

/// A message, as far as it is judged. Fields beyond these are carried by some providers and pass.
#[derive(Debug, Deserialize)]
pub(crate) struct Message<'b> {
    #[serde(borrow)]
    pub(crate) role: Cow<'b, str>,
    #[serde(default, borrow)]
    pub(crate) content: Option<&'b RawValue>,
    #[serde(default, borrow)]
    pub(crate) tool_calls: Option<Vec<ToolCall<'b>>>,
    #[serde(default, borrow)]
    pub(crate) tool_call_id: Option<Cow<'b, str>>,
    #[serde(default, borrow)]
    pub(crate) refusal: Option<&'b RawValue>,
}

/// A call in an assistant message.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolCall<'b> {
    #[serde(borrow)]
    pub(crate) id: Cow<'b, str>,
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Cow<'b, str>,
    #[serde(borrow)]
    pub(crate) function: CalledFunction<'b>,
}

/// What a call calls.
#[derive(Debug, Deserialize)]
pub(crate) struct CalledFunction<'b> {
    #[serde(borrow)]
    pub(crate) name: Cow<'b, str>,
    #[serde(borrow)]
    #[expect(dead_code, reason = "must be there and be a string")]
    arguments: Cow<'b, str>,
}

/// One part of a content array.
#[derive(Debug, Deserialize)]
pub(crate) struct Part<'b> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Cow<'b, str>,
    #[serde(default, borrow)]
    pub(crate) text: Option<Cow<'b, str>>,
}

/// A tool that a request offers.
#[derive(Debug, Deserialize)]
pub(crate) struct OfferedTool<'b> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Cow<'b, str>,
    #[serde(borrow)]
    pub(crate) function: OfferedFunction<'b>,
}

/// What an offered tool is called and takes.
#[derive(Debug, Deserialize)]
pub(crate) struct OfferedFunction<'b> {
    #[serde(borrow)]
    pub(crate) name: Cow<'b, str>,
    #[serde(default, borrow)]
    pub(crate) parameters: Option<&'b RawValue>,
}
