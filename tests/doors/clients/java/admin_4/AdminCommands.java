package org.apache.pulsar.admin.cli;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Runs the commands of a file with `pulsar-admin`, in one JVM: of each, the output and "= EXIT CODE". */
public class AdminCommands {
    public static void main(String[] arguments) throws Exception {
        PulsarAdminTool.setAllowSystemExit(false);
        for (String command : Files.readAllLines(Path.of(arguments[0]))) {
            PulsarAdminTool.resetLastExitCode();
            System.out.println("$ " + command);
            List<String> words = new ArrayList<>(List.of("/dev/null", "--admin-url", arguments[1]));
            words.addAll(List.of(command.split(" ")));
            PulsarAdminTool.execute(words.toArray(new String[0]));
            System.err.flush();
            System.out.println("= " + PulsarAdminTool.getLastExitCode());
            System.out.flush();
        }
        // The tool leaves threads of its clients behind.
        System.exit(0);
    }
}
