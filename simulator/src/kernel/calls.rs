//! The calls of the simulated processes. A process is preempted at each of them: the course of the
//! world may go on before the call takes effect, and the process may be stopped or killed there.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitIdOptions};
use tenure::clock::Moment;
use tenure::exec::kernel::{Change, Kernel, Stat};
use tenure::exec::watchdog_client::{Link as ClientLink, Task, WatchdogClient};
use tenure::exec::wire::{End, RECORD, WatchdogCommand};
use tokio::sync::oneshot;

use super::link::Link;
use super::program::Program;
use super::signal::CONT;
use super::table::{INIT, Role, TENURE};
use super::world::{Waiting, World};

thread_local! {
    /// The world, and the process that runs in it.
    static HERE: RefCell<Option<(Rc<World>, i32)>> = const { RefCell::new(None) };
}

/// Runs something as a process; processes may be nested, where one preempts another.
pub fn as_process<T>(world: &Rc<World>, id: i32, work: impl FnOnce() -> T) -> T {
    struct Back(Option<(Rc<World>, i32)>);
    impl Drop for Back {
        fn drop(&mut self) {
            HERE.set(self.0.take());
        }
    }
    let _back = Back(HERE.replace(Some((Rc::clone(world), id))));
    work()
}

fn here() -> (Rc<World>, i32) {
    HERE.with_borrow(|it| it.clone()).expect("only processes make calls")
}

/// Makes a call: what happens at this place happens, then the call itself.
fn call<T>(name: &'static str, effect: impl FnOnce(&Rc<World>, i32) -> T) -> T {
    let (world, id) = here();
    world.preempt(id, name);
    effect(&world, id)
}

fn pid(id: i32) -> Pid {
    Pid::from_raw(id).expect("an id is positive")
}

fn raw(id: Pid) -> i32 {
    id.as_raw_nonzero().get()
}

/// The simulated kernel, as the process that calls it sees it.
pub struct Simulated;

impl Kernel for Simulated {
    fn now(&self) -> Moment {
        call("now", |world, _| world.moment())
    }

    fn session(&self) -> i32 {
        call("getsid", |world, id| world.table.borrow().get(id).map_or(0, |it| it.session))
    }

    fn parent(&self) -> Option<Pid> {
        call("getppid", |world, id| world.table.borrow().get(id).map(|it| pid(it.parent)))
    }

    fn die_with_parent(&self) -> bool {
        call("prctl", |world, id| world.table.borrow_mut().at(id).bound = true);
        true
    }

    fn children(&self) -> Vec<Pid> {
        call("children", |world, id| {
            world.table.borrow().children(id).into_iter().map(pid).collect()
        })
    }

    fn processes(&self) -> Option<Vec<Pid>> {
        call("processes", |world, _| {
            Some(world.table.borrow().all.keys().map(|it| pid(*it)).collect())
        })
    }

    fn stat(&self, id: Pid) -> Option<Stat> {
        call("stat", |world, _| {
            world.table.borrow().get(raw(id)).map(|it| Stat {
                lives: it.ended.is_none(),
                parent: it.parent,
                group: it.group,
                session: it.session,
                since: it.since,
            })
        })
    }

    fn group_of(&self, id: Pid) -> Option<Pid> {
        call("getpgid", |world, _| world.table.borrow().get(raw(id)).map(|it| pid(it.group)))
    }

    fn signal(&self, id: Pid, signal: Signal) -> Result<(), Errno> {
        call("kill", |world, from| world.signal(from, raw(id), signal.as_raw()))
    }

    fn signal_group(&self, group: Pid, signal: Signal) {
        call("killpg", |world, from| {
            let members = world.table.borrow().group(raw(group));
            for id in members {
                let _ = world.signal(from, id, signal.as_raw());
            }
        });
    }

    fn hold(&self, id: Pid) -> Result<Box<dyn Fn(Signal)>, Errno> {
        let id = raw(id);
        let since = call("pidfd_open", |world, _| {
            world.table.borrow().get(id).map(|it| it.since).ok_or(Errno::SRCH)
        })?;
        Ok(Box::new(move |signal| {
            call("pidfd_send_signal", |world, from| {
                let is_same = world.table.borrow().get(id).is_some_and(|it| it.since == since);
                if is_same {
                    let _ = world.signal(from, id, signal.as_raw());
                }
            });
        }))
    }

    fn wait(&self, child: Option<Pid>, options: WaitIdOptions) -> Result<Option<Change>, Errno> {
        let options = [WaitIdOptions::EXITED, WaitIdOptions::STOPPED, WaitIdOptions::NOWAIT]
            .map(|it| options.contains(it));
        call("waitid", |world, id| world.table.borrow_mut().wait(id, child.map(raw), options))
    }

    fn send(&self, bytes: &[u8]) {
        call("send", |world, id| {
            let mut table = world.table.borrow_mut();
            let term = table.at(id).term;
            let link = table.link(term);
            link.to_tenure.extend(bytes);
        });
    }

    fn receive(&self, into: &mut Vec<u8>) -> Result<usize, Errno> {
        call("recv", |world, id| {
            let mut table = world.table.borrow_mut();
            let (now, term) = (table.now, table.at(id).term);
            let got = table.link(term).receive(8 * RECORD, now)?;
            into.extend(&got);
            Ok(got.len())
        })
    }
}

/// Starts a process of this one; fails where the course says so.
pub fn fork(role: Role, own_group: bool) -> io::Result<i32> {
    call("fork", |world, id| {
        if world.fork_fails.take() {
            return Err(Errno::AGAIN.into());
        }
        let mut table = world.table.borrow_mut();
        let term = table.at(id).term;
        Ok(table.spawn(id, role, term, own_group))
    })
}

/// The launcher executes the command.
pub fn execute() {
    call("execve", |world, id| world.table.borrow_mut().execute(id));
}

/// Sets a timer of Tenure's runtime.
pub fn sleep(duration: Duration) -> BoxFuture<'static, ()> {
    let (fired, fires) = oneshot::channel();
    here().0.set_timer(duration, fired);
    Box::pin(async { fires.await.unwrap_or_else(|_| unreachable!("timers are kept")) })
}

/// Starts a reaper, as Tenure.
pub fn start(_: &Task, variables: &[(&str, &OsStr)], end: End) -> io::Result<WatchdogClient> {
    let term = variables.iter().find(|(name, _)| *name == "TENURE_TERM");
    let term = term.and_then(|(_, it)| it.to_str()?.parse().ok()).expect("the term is passed on");
    let reaper = call("spawn", |world, _| {
        if world.fork_fails.take() {
            return Err(io::Error::from(Errno::AGAIN));
        }
        Ok(world.start_reaper(term))
    })?;
    // The reaper runs from here on; its first order comes later.
    call("sendmsg", |world, _| {
        let mut table = world.table.borrow_mut();
        let now = table.now;
        let _ = table.link(term).send(&WatchdogCommand::Belief(end).to_bytes(), now);
    });
    Ok(WatchdogClient::over(Box::new(Connection { term, reaper: Some(reaper) })))
}

/// Tenure's end of a socket, and its handle of the reaper.
struct Connection {
    term: u64,
    /// The reaper, until it has been waited for.
    reaper: Option<i32>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        HERE.with_borrow(|it| {
            if let Some((world, _)) = it {
                world.table.borrow_mut().link(self.term).close();
            }
        });
    }
}

impl ClientLink for Connection {
    fn resume(&self) {
        if let Some(reaper) = self.reaper {
            let _ = call("kill", |world, _| world.signal(TENURE, reaper, CONT));
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        call("send", |world, _| {
            world.judge_order(self.term, bytes);
            let mut table = world.table.borrow_mut();
            let now = table.now;
            table.link(self.term).send(bytes, now)
        })
    }

    fn close(&self) {
        call("shutdown", |world, _| world.table.borrow_mut().link(self.term).close());
    }

    fn receive<'a>(&'a mut self, into: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<usize>> {
        let term = self.term;
        Box::pin(poll_fn(move |context| {
            let (world, _) = here();
            let mut table = world.table.borrow_mut();
            let link = table.link(term);
            if link.to_tenure.is_empty() && !link.is_over() {
                world.wake_when(Waiting::Report(term), context.waker().clone());
                return Poll::Pending;
            }
            let got = link.to_tenure.len();
            into.extend(link.to_tenure.drain(..));
            Poll::Ready(Ok(got))
        }))
    }

    fn ended(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(poll_fn(|context| {
            let Some(reaper) = self.reaper else { return Poll::Ready(()) };
            let (world, _) = here();
            let waited = world.table.borrow_mut().wait(TENURE, Some(reaper), [true, false, false]);
            if matches!(waited, Ok(None)) {
                world.wake_when(Waiting::Exit(reaper), context.waker().clone());
                return Poll::Pending;
            }
            self.reaper = None;
            Poll::Ready(())
        }))
    }

    fn id(&self) -> Option<u32> {
        self.reaper.and_then(|it| it.try_into().ok())
    }
}

/// Creates the process and the connection of a reaper.
impl World {
    fn start_reaper(&self, term: u64) -> i32 {
        let mut table = self.table.borrow_mut();
        if table.links.iter().any(|it| it.term == term) {
            table.violated(|| format!("a second watchdog in term {term}"));
        }
        let parent = if table.lives(TENURE) { TENURE } else { INIT };
        let reaper = table.spawn(parent, Role::Reaper, term, true);
        table.links.push(Link::new(term, reaper));
        drop(table);
        self.add(reaper, Program::ReaperStarts);
        reaper
    }
}
