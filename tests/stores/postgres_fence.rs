//! The fence of docs/stores/postgres.md: the SQL of the page on a real server, with a statement of an old
//! leader that waits for a row's lock while the next leader begins.

use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::Arc;

use testkit::postgres::server::PostgresServer;
use testkit::processes::process::{BOUND, until};
use testkit::stores::servers::SharedServer;

/// The statements of the page, in order: the definitions, the start of a term, and work.
fn page() -> [String; 3] {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/stores/postgres.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split("## Fencing in the same database").nth(1).expect("the section");
    let blocks = section.split("```sql\n").skip(1).map(|it| it.split("\n```").next().unwrap());
    let blocks: Vec<_> = blocks.map(str::to_owned).collect();
    blocks.try_into().expect("three blocks of SQL")
}

/// A database with the page's objects and its table of orders, of which one row is locked.
struct Scene {
    server: Arc<PostgresServer>,
    database: String,
    /// The transaction that keeps the row locked until its input ends.
    lock: Option<Child>,
}

/// A statement that is being executed for a client.
struct Running(Child);

impl Scene {
    /// Creates a database of this name, with this leader's term.
    fn new(name: &str, setup: &str) -> Self {
        let server = PostgresServer::shared();
        server.sql(&format!("CREATE DATABASE {name}"));
        let scene = Self { server, database: name.to_owned(), lock: None };
        scene.sql("CREATE TABLE orders (id int PRIMARY KEY, state text)");
        scene.sql("INSERT INTO orders VALUES (17, 'open')");
        scene.sql(setup);
        scene
    }

    fn start(&self, statements: &str) -> Child {
        let mut command = self.server.psql(&self.database);
        command.args(["-c", statements]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs statements in one message, to their end; returns the error, if they fail.
    fn run(&self, statements: &str) -> Result<(), String> {
        Running(self.start(statements)).ended()
    }

    #[track_caller]
    fn sql(&self, statements: &str) -> String {
        let output = self.server.psql(&self.database).args(["-c", statements]).output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        assert!(output.status.success(), "{statements}: {err}");
        out.trim().to_owned()
    }

    /// Locks the row of the order.
    fn lock_row(&mut self) {
        let mut command = self.server.psql(&self.database);
        let mut lock = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let statements = b"BEGIN; SELECT FROM orders WHERE id = 17 FOR UPDATE;\n";
        lock.stdin.as_mut().unwrap().write_all(statements).unwrap();
        self.lock = Some(lock);
        until(BOUND, "the row is locked", || {
            (self.sessions("state = 'idle in transaction'") == 1).then_some(())
        });
    }

    fn unlock_row(&mut self) {
        let mut lock = self.lock.take().unwrap();
        drop(lock.stdin.take());
        lock.wait().unwrap();
    }

    fn sessions(&self, condition: &str) -> u32 {
        let database = &self.database;
        let count = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND pid <> \
                             pg_backend_pid() AND {condition}"
        );
        self.sql(&count).parse().unwrap()
    }

    fn waits(&self, sessions: u32) {
        until(BOUND, "a statement waits for a lock", || {
            (self.sessions("wait_event_type = 'Lock'") == sessions).then_some(())
        });
    }

    /// Sends work of a leader that is killed while its statement waits for the row.
    fn dies_while_it_waits(&self, work: &str) {
        let mut old = self.start(work);
        self.waits(1);
        old.kill().unwrap();
        old.wait().unwrap();
        assert_eq!(self.sessions("wait_event_type = 'Lock'"), 1, "the server goes on");
    }

    /// Waits until nothing of the old leader is under way.
    fn settles(&self) {
        until(BOUND, "all sessions have ended", || (self.sessions("true") == 0).then_some(()));
    }

    fn state(&self) -> String {
        self.sql("SELECT state FROM orders WHERE id = 17")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(lock) = &mut self.lock {
            let _ = lock.kill();
            let _ = lock.wait();
        }
    }
}

impl Running {
    fn ended(self) -> Result<(), String> {
        let output = self.0.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(words) }
    }
}

/// What the page says of a condition in the statement itself.
#[test]
fn a_statement_that_waits_outlives_a_condition_on_the_term() {
    let mut scene = Scene::new(
        "condition",
        "CREATE TABLE tenure (election text PRIMARY KEY, term bigint); INSERT INTO tenure VALUES ('orders', 41)",
    );
    scene.lock_row();
    scene.dies_while_it_waits(
        "UPDATE orders SET state = 'paid'
         WHERE id = 17 AND (SELECT term FROM tenure WHERE election = 'orders') = 41",
    );
    scene.sql("UPDATE tenure SET term = 42");
    assert_eq!(scene.state(), "open", "the next leader reads this and begins");
    scene.unlock_row();
    scene.settles();
    assert_eq!(scene.state(), "paid", "the old leader has written after that");
}

#[test]
fn nothing_of_an_older_term_is_written_once_the_fence_is_raised() {
    let [definitions, begin, work] = page();
    let of = |text: &str, term: &str| text.replace("42", term);
    let mut scene = Scene::new("fenced", &definitions);
    assert!(scene.run(&work).unwrap_err().contains("fenced"), "nobody has begun");
    scene.run(&of(&begin, "41")).unwrap();
    scene.lock_row();
    scene.dies_while_it_waits(&of(&work, "41"));
    // The fence waits for what is under way, and no longer than it says.
    let hasty = begin.replace("'5s'", "'200ms'");
    assert_ne!(hasty, begin);
    let why = scene.run(&hasty).unwrap_err();
    assert!(why.contains("lock timeout"), "{why}");
    let raising = Running(scene.start(&begin.replace("'5s'", "'60s'")));
    scene.waits(2);
    assert_eq!(scene.state(), "open");
    scene.unlock_row();
    raising.ended().unwrap();
    assert_eq!(scene.state(), "paid", "the new leader finds what was under way");
    scene.sql("UPDATE orders SET state = 'open'");
    scene.settles();
    // What comes late is refused; the new leader works, and may begin again.
    for late in [of(&work, "41"), of(&begin, "41")] {
        let why = scene.run(&late).unwrap_err();
        assert!(why.contains("fenced") && why.contains("41"), "{why}");
    }
    assert_eq!(scene.state(), "open");
    scene.run(&begin).unwrap();
    scene.run(&work).unwrap();
    assert_eq!(scene.state(), "paid");
}

/// The check waits for a fence that is being raised, and then sees it, at each isolation level.
#[test]
fn a_check_that_waits_for_the_fence_is_refused() {
    let [definitions, begin, work] = page();
    for (number, level) in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"].iter().enumerate()
    {
        let mut scene = Scene::new(&format!("waiting_{number}"), &definitions);
        scene.run(&begin.replace("42", "41")).unwrap();
        let mut command = scene.server.psql(&scene.database);
        let mut raising = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let open = begin.strip_suffix("COMMIT;").unwrap();
        let input = raising.stdin.as_mut().unwrap();
        input.write_all(format!("{open}\n").as_bytes()).unwrap();
        until(BOUND, "the fence is being raised", || {
            (scene.sessions("state = 'idle in transaction' AND query LIKE '%raise_term%'") == 1)
                .then_some(())
        });
        let old =
            work.replace("42", "41").replace("BEGIN;", &format!("BEGIN ISOLATION LEVEL {level};"));
        let waiting = Running(scene.start(&old));
        scene.waits(1);
        input.write_all(b"COMMIT;\n").unwrap();
        drop(raising.stdin.take());
        raising.wait().unwrap();
        let why = waiting.ended().unwrap_err();
        assert!(why.contains("fenced") || why.contains("could not serialize"), "{level}: {why}");
        assert_eq!(scene.state(), "open");
        scene.lock = None;
    }
}
