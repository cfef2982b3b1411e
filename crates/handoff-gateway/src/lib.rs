//! The only door of a sandbox: meters, holds, injects credentials and cuts off.
//!
//! A node starts one gateway ([`Gateway::start`]) and drives it over its control socket ([`GatewayClient`],
//! verbs in [`control`]). Each destination gets a door, a Unix socket that its agent calls models through.
//!
//! | what happens to a call | where |
//! |---|---|
//! | it comes in: token, path, size | `door` |
//! | what it asks for, and the two edits that metering needs | `wire` |
//! | what it can cost at the most, and how far it is lowered to fit | `bid`, [`price`] |
//! | its maximum is held, durably, for the epoch that pays | `account`, [`meter`], `journal` |
//! | it leaves with the operator's credential, and with nothing of the agent's authority | `upstream`, `credential` |
//! | its answer goes back as it comes, without the credential | `answer`, `stream`, `sse`, `scrub`, `reply` |
//! | what it used settles the hold, once | `call`, `account` |
//! | whoever leaves meanwhile is charged all the same | `course` |
//!
//! Only [`meter`] decides about money; it is pure. Only `account` calls it, under one lock per destination, and
//! what is decided in an order is written in that order. The operator's file is [`policy`], a changed one is put
//! `in_force` while calls go on, time is [`clock`].
//! What is absent: no database, no HTTP to the control plane, no retry of a call, no parsed and re-encoded
//! message.

mod account;
mod answer;
mod bid;
mod call;
mod client;
pub mod clock;
pub mod control;
mod course;
mod credential;
mod descriptors;
mod destination;
mod door;
mod gateway;
mod in_force;
mod journal;
pub mod meter;
pub mod policy;
pub mod price;
mod refusal;
mod reply;
mod room;
mod scrub;
mod socket;
mod sse;
mod stream;
mod upstream;
mod wire;

pub use client::{ClientError, GatewayClient};
pub use credential::ReadEnv;
pub use gateway::{CONTROL_SOCKET, Gateway, GatewayOptions, Running, StartError, TakeUpError};
pub use policy::{Policy, PolicyWatch};
