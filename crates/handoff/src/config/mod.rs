//! Where state lives and what an operator may set: flag > environment > `config.toml` > default. Unknown keys
//! are refused. Each role reads only its own part.

#[cfg(test)]
mod documented;
mod home;
mod secrets;
mod settings;

pub use home::{Home, make_private};
pub use secrets::token_secret;
pub use settings::{BlobPlace, NodeSettings, PolicySettings, Settings};
