//! Keeps what is in the memory of this process from other processes of the same user, such as hooks
//! and the command of `tenure exec`.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::set_no_new_privs;

/// Makes this process not dumpable: no debugger of the same user can attach to it, its
/// `/proc/…/environ` and `…/mem` are for root alone, and a crash leaves no core dump. A program that
/// this process executes is dumpable again, and has the same limit of core dumps as before.
pub(crate) fn keep_memory_private() {
    // It fails only on kernels that cannot do it.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Gives up for this thread, those that it starts, and all programs that they execute, what setuid
/// programs and file capabilities would grant.
pub(crate) fn give_up_new_privileges() {
    let _ = set_no_new_privs(true);
}
