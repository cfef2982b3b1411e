//! The only door of a sandbox: meters, holds, injects credentials and cuts off.
