import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.h2.H2Backend;
import de.bwaldvogel.mongo.bson.Document;
import de.bwaldvogel.mongo.wire.message.MongoMessage;

/**
 * Starts mongo-java-server: PORT FILE. What it has answered is on the disk, as by MongoDB's journal, and a read sees no
 * part of a write, as MongoDB promises for one document: mongo-java-server changes documents in place, field by field,
 * while the answers to reads have yet to be encoded from them.
 */
public class Server {
    public static void main(String[] arguments) {
        H2Backend backend = new H2Backend(arguments[1]) {
            @Override
            public synchronized Document handleMessage(MongoMessage message) {
                Document answer = super.handleMessage(message).cloneDeeply();
                commit();
                return answer;
            }
        };
        new MongoServer(backend).bind("127.0.0.1", Integer.parseInt(arguments[0]));
    }
}
