package org.apache.pulsar.broker.service;

import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.apache.pulsar.common.protocol.schema.SchemaStorage;
import org.testng.annotations.BeforeClass;
import org.testng.annotations.BeforeMethod;

/**
 * Stands in front of Pulsar's class of this name, so that its tests run against a door: their client, their admin, and
 * a namespace for each test. What reads the inside of a broker fails: there is none.
 *
 * System properties: door.pulsar, door.rest: the URLs of the door.
 */
public abstract class SharedPulsarBaseTest {
    private static final String TENANT = "test-tenant";

    protected PulsarAdmin admin;
    protected PulsarClient pulsarClient;
    private String namespace;

    @BeforeClass(alwaysRun = true)
    public void setupSharedCluster() throws Exception {
        admin = PulsarAdmin.builder().serviceHttpUrl(getWebServiceUrl()).build();
        pulsarClient = newPulsarClient();
        try {
            admin.tenants().createTenant(TENANT, TenantInfo.builder().allowedClusters(clusters()).build());
        } catch (PulsarAdminException.ConflictException another) {
            // It was created for another class of tests.
        }
    }

    @BeforeMethod(alwaysRun = true)
    public void setupSharedTest() throws Exception {
        namespace = createNewNamespace();
    }

    protected String createNewNamespace() throws Exception {
        String created = TENANT + "/test-" + suffix();
        admin.namespaces().createNamespace(created, clusters());
        return created;
    }

    protected String getNamespace() {
        return namespace;
    }

    protected String newTopicName() {
        return "persistent://" + namespace + "/topic-" + suffix();
    }

    protected String getBrokerServiceUrl() {
        return System.getProperty("door.pulsar");
    }

    protected String getWebServiceUrl() {
        return System.getProperty("door.rest");
    }

    protected PulsarClient newPulsarClient() throws PulsarClientException {
        return PulsarClient.builder().serviceUrl(getBrokerServiceUrl()).build();
    }

    protected ServiceConfiguration getConfig() {
        throw noBroker();
    }

    protected SchemaStorage getSchemaStorage() {
        throw noBroker();
    }

    protected Optional<Topic> getTopicReference(String topic) {
        throw noBroker();
    }

    protected CompletableFuture<Optional<Topic>> getTopic(String topic, boolean createIfMissing) {
        throw noBroker();
    }

    protected CompletableFuture<Optional<Topic>> getTopicIfExists(String topic) {
        throw noBroker();
    }

    static UnsupportedOperationException noBroker() {
        return new UnsupportedOperationException("the test reads the inside of a broker");
    }

    private static Set<String> clusters() {
        return Set.of("standalone");
    }

    private static String suffix() {
        return UUID.randomUUID().toString().substring(0, 8);
    }
}
