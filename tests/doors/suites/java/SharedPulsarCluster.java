package org.apache.pulsar.broker.service;

import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.PulsarClient;

/** Stands in front of Pulsar's class of this name, which starts a broker in this process: here is none. */
public class SharedPulsarCluster {
    private SharedPulsarCluster() {}

    public static SharedPulsarCluster get() {
        throw SharedPulsarBaseTest.noBroker();
    }

    public PulsarService getPulsarService() {
        throw SharedPulsarBaseTest.noBroker();
    }

    public PulsarAdmin getAdmin() {
        throw SharedPulsarBaseTest.noBroker();
    }

    public PulsarClient getClient() {
        throw SharedPulsarBaseTest.noBroker();
    }
}
