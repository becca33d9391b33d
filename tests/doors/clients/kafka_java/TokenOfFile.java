import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** The token in a file, as a program gives it to Java's client for OAUTHBEARER. Options of JAAS: file, seconds. */
public class TokenOfFile implements AuthenticateCallbackHandler {
    private Path file;
    private long lifetimeMs;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        Map<String, ?> options = entries.get(0).getOptions();
        file = Path.of((String) options.get("file"));
        lifetimeMs = 1_000 * Long.parseLong((String) options.get("seconds"));
    }

    @Override
    public void handle(Callback[] callbacks) {
        for (Callback each : callbacks) {
            if (each instanceof OAuthBearerTokenCallback) {
                ((OAuthBearerTokenCallback) each).token(token());
            } else if (!(each instanceof SaslExtensionsCallback)) {
                throw new IllegalArgumentException(each.toString());
            }
        }
    }

    private OAuthBearerToken token() {
        long startMs = System.currentTimeMillis();
        String value;
        try {
            value = Files.readString(file).strip();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new OAuthBearerToken() {
            @Override
            public String value() {
                return value;
            }

            @Override
            public Set<String> scope() {
                return Set.of();
            }

            @Override
            public long lifetimeMs() {
                return startMs + lifetimeMs;
            }

            @Override
            public String principalName() {
                return "me";
            }

            @Override
            public Long startTimeMs() {
                return startMs;
            }
        };
    }

    @Override
    public void close() {
    }
}
