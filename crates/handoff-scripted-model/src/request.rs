//! A Chat Completions request as it arrives: slices of its own bytes, so that a message is what was sent.

use handoff_protocol::{json, scan};

use crate::validate::Invalid;

/// The parameters of the wire format that change nothing here. One outside of this list and of the ones that
/// are read is refused, as the real API does. Source: the public API reference of `POST /v1/chat/completions`.
const WITHOUT_MEANING: [&str; 28] = [
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "metadata",
    "modalities",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "temperature",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

/// What a request asks for.
#[derive(Debug, Default)]
pub(crate) struct ChatRequest<'b> {
    pub(crate) model: String,
    pub(crate) messages: Vec<&'b str>,
    pub(crate) stream: bool,
    pub(crate) stream_options: bool,
    pub(crate) include_usage: bool,
    pub(crate) tools: Vec<&'b str>,
    /// The most tokens of the answer.
    pub(crate) limit: Option<u64>,
}

impl<'b> ChatRequest<'b> {
    /// Reads a body. Like real APIs it refuses half characters and anything ambiguous.
    pub(crate) fn read(body: &'b [u8]) -> Result<Self, Invalid> {
        json::check(body).map_err(|error| invalid(None, error.to_string()))?;
        let text = std::str::from_utf8(body).map_err(|error| invalid(None, error.to_string()))?;
        if scan::without_lone_surrogates(text).is_some() {
            return Err(invalid(None, "a string holds half of a surrogate pair".to_owned()));
        }
        let members = scan::members(text).ok_or_else(|| wrong(None, "an object"))?;
        let mut request = Self::default();
        for member in members {
            let name = scan::string(member.key).unwrap_or_default();
            request.take(&name, member.value)?;
        }
        for (name, missing) in
            [("model", request.model.is_empty()), ("messages", request.messages.is_empty())]
        {
            if missing {
                return Err(invalid(Some(name), "is required and must not be empty".to_owned()));
            }
        }
        Ok(request)
    }

    fn take(&mut self, name: &str, value: &'b str) -> Result<(), Invalid> {
        let at = Some(name);
        match name {
            "messages" => self.messages = scan::elements(value).ok_or_else(|| wrong(at, "an array"))?,
            "model" => self.model = scan::string(value).ok_or_else(|| wrong(at, "a string"))?,
            _ if value == "null" => {}
            "tools" => self.tools = scan::elements(value).ok_or_else(|| wrong(at, "an array"))?,
            "stream" => self.stream = truth(at, value)?,
            "max_tokens" | "max_completion_tokens" => {
                let limit = value.parse().ok().filter(|limit| *limit > 0);
                self.limit = Some(limit.ok_or_else(|| wrong(at, "a positive integer"))?);
            }
            "stream_options" => {
                self.stream_options = true;
                let members = scan::members(value).ok_or_else(|| wrong(at, "an object"))?;
                for member in members {
                    match scan::string(member.key).as_deref() {
                        Some("include_usage") => self.include_usage = truth(at, member.value)?,
                        Some("include_obfuscation") => {}
                        _ => return Err(invalid(at, format!("has no member {}", member.key))),
                    }
                }
            }
            _ if WITHOUT_MEANING.contains(&name) => {}
            _ => return Err(invalid(at, "is not a parameter of this API".to_owned())),
        }
        Ok(())
    }
}

fn truth(name: Option<&str>, value: &str) -> Result<bool, Invalid> {
    value.parse().map_err(|_| wrong(name, "true or false"))
}

fn wrong(param: Option<&str>, must: &str) -> Invalid {
    invalid(param, format!("must be {must}"))
}

fn invalid(param: Option<&str>, message: String) -> Invalid {
    Invalid { message, param: param.map(str::to_owned) }
}
