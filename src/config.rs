//! Settings from flags, environment and file, validated as a whole.
//!
//! [`load`] returns them, or all faults in one message. This module starts nothing, makes no
//! network request, and keeps no secret that is in a file. [`Environment`] is the only reader of
//! the process's variables.
//!
//! An empty variable counts as not set, since templates write `NAME=` for "no value". An empty flag
//! or an empty key of the file is a fault, since it cannot be meant.

pub mod admin;
pub mod arguments;
mod aws_files;
mod azure;
pub mod command_line;
mod consul;
pub mod duration;
mod endpoint;
mod environment;
mod etcd;
mod exec_options;
mod faults;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod gcs;
mod health;
mod hooks;
mod kubernetes;
mod kubernetes_names;
mod layers;
mod lock_url;
mod machine;
mod mongodb;
mod peers;
mod postgres;
mod reader;
mod redis;
mod resolve;
mod s3;
mod scheduled_events;
mod secret;
mod service;
mod setting;
mod settings;
mod shutdown_budget;
mod store_tls;
mod store_url;
mod table;
mod timings;
mod tls;
mod values;
pub mod variables;
mod warnings;
mod withheld;
mod zookeeper;

pub use admin::Admin;
#[cfg(feature = "s3")]
pub(crate) use aws_files::{sections as aws_sections, value as aws_value};
pub use azure::{AzureCredential, AzureSettings};
pub(crate) use azure::{AzureSecret, SecretForm, shown};
pub use command_line::CommandLine;
pub use consul::ConsulSettings;
pub(crate) use endpoint::is_loopback;
pub use environment::Environment;
pub use etcd::{EtcdSettings, EtcdUser};
pub use exec_options::ExecOptions;
pub use faults::{Fault, Faults, Problem, Source, Warning};
pub use gcs::{GcsSettings, GoogleCredential};
pub use health::{Health, Probe};
pub use hooks::{HOOK_GRACE, Hook, Hooks};
pub use kubernetes::{KubeAccess, KubePublishing, KubernetesSettings, Route};
pub(crate) use kubernetes_names::slice as slice_name;
pub use layers::Flags;
pub use mongodb::{MongoSettings, MongoUser};
pub use peers::{Peers, Rank};
pub use postgres::{PostgresPassword, PostgresSettings, PostgresTable};
pub use redis::RedisSettings;
pub use resolve::{Loaded, load, load_to_examine};
pub use s3::{AwsCredential, S3Settings};
pub use scheduled_events::ScheduledEvents;
pub use secret::SecretSource;
pub use settings::{FileSettings, Settings, StoreSettings};
pub use shutdown_budget::Ending;
pub use store_tls::StoreTls;
pub use store_url::Address;
pub use table::{Kind, SETTINGS, Setting, UnderExec, Verb, nearest};
pub use timings::Timings;
pub use values::{FileFormat, Listen, LogFormat, StatusFile};
pub use withheld::Withheld;
pub use zookeeper::ZookeeperSettings;
#[cfg(feature = "zookeeper")]
pub(crate) use zookeeper::digest_user;

#[cfg(test)]
mod tests;
