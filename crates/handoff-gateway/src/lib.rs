//! The only door of a sandbox: meters, holds, injects credentials and cuts off.

mod account;
mod answer;
mod bid;
mod call;
mod client;
pub mod clock;
pub mod control;
mod course;
mod credential;
mod destination;
mod door;
mod gateway;
mod journal;
pub mod meter;
pub mod policy;
pub mod price;
mod refusal;
mod reply;
mod scrub;
mod socket;
mod sse;
mod stream;
mod upstream;
mod wire;

pub use client::{ClientError, GatewayClient};
pub use credential::ReadEnv;
pub use gateway::{CONTROL_SOCKET, Gateway, GatewayOptions, Running, StartError};
pub use policy::Policy;
