import java.lang.reflect.Field;
import org.eclipse.jetty.server.Connector;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import software.amazon.dynamodb.services.local.main.ServerRunner;
import software.amazon.dynamodb.services.local.server.DynamoDBProxyServer;

/**
 * Starts DynamoDB Local on loopback only, at a port of the system's choice unless one is given, and says which.
 *
 * <p>The engine's own main class binds every interface and has no option for it, so the connector is set here before it
 * is opened. Called as {@code Launcher attached PORT} it ends when its standard input does, which happens when the last
 * process that holds the other end is gone, however it went. {@code Launcher detached PORT} runs until it is stopped.
 */
public final class Launcher {
    public static void main(String[] args) throws Exception {
        boolean attached = args[0].equals("attached");
        int port = Integer.parseInt(args[1]);
        String[] options = {"-inMemory", "-sharedDb", "-disableTelemetry", "-port", "8000"};
        DynamoDBProxyServer engine = ServerRunner.createServerFromCommandLineArgs(options);
        ServerConnector connector = connectorOf(engine);
        connector.setHost("127.0.0.1");
        connector.setPort(port);
        engine.start();
        System.out.println("listening on " + connector.getLocalPort());
        System.out.flush();
        if (attached) {
            while (System.in.read() >= 0) {}
            Runtime.getRuntime().halt(0);
        }
        engine.join();
    }

    private static ServerConnector connectorOf(DynamoDBProxyServer engine) throws ReflectiveOperationException {
        Field field = DynamoDBProxyServer.class.getDeclaredField("server");
        field.setAccessible(true);
        Connector[] connectors = ((Server) field.get(engine)).getConnectors();
        if (connectors.length != 1) {
            throw new IllegalStateException("expected one connector, found " + connectors.length);
        }
        return (ServerConnector) connectors[0];
    }
}
