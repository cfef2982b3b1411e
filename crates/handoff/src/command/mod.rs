//! One file per verb.

pub mod agent;
pub mod approve;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod gateway;
pub mod logs;
pub mod node;
pub mod plan;
pub mod reap;
pub mod relocate;
pub mod resume;
pub mod scripted_model;
pub mod serve;
pub mod session;
pub mod status;
pub mod supervise;
pub mod token;
pub mod transfer;
