//! temp
use vsteer_core::{
    Fault,
    nouns::HostConfig,
    plan::{Change, Scope, Step},
};
/// temp
pub trait Actuate {
    /// t
    fn current(&mut self, step: &Step) -> Result<Change, Fault>;
    /// t
    fn act(&mut self, step: &Step, scope: Scope) -> Result<(), Fault>;
}
/// temp
pub struct KvmActuator;
impl KvmActuator {
    /// t
    pub fn open(_c: Option<String>) -> Result<Self, Fault> {
        Ok(Self)
    }
    /// t
    pub fn config(&mut self) -> Result<HostConfig, Fault> {
        Err(Fault::new(vsteer_core::FaultKind::Failed, "temp"))
    }
}
impl Actuate for KvmActuator {
    fn current(&mut self, s: &Step) -> Result<Change, Fault> {
        Ok(s.change.clone())
    }
    fn act(&mut self, _: &Step, _: Scope) -> Result<(), Fault> {
        Ok(())
    }
}
