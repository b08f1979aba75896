import java.util.Arrays;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.retry.RetryNTimes;

/** Runs a command once it leads by Curator's LeaderLatch, as `etcdctl lock` does: SERVERS PATH COMMAND… */
public class LatchLock {
    public static void main(String[] arguments) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], 15_000, 10_000, new RetryNTimes(3, 100))) {
            client.start();
            int status;
            try (LeaderLatch latch = new LeaderLatch(client, arguments[1])) {
                latch.start();
                latch.await();
                String[] command = Arrays.copyOfRange(arguments, 2, arguments.length);
                status = new ProcessBuilder(command).inheritIO().start().waitFor();
            }
            System.exit(status);
        }
    }
}
