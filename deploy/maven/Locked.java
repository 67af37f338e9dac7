import java.io.IOException;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.inject.Inject;
import javax.inject.Named;
import javax.inject.Singleton;
import org.apache.maven.AbstractMavenLifecycleParticipant;
import org.apache.maven.MavenExecutionException;
import org.apache.maven.execution.MavenSession;
import org.apache.maven.project.DefaultDependencyResolutionRequest;
import org.apache.maven.project.DependencyResolutionException;
import org.apache.maven.project.MavenProject;
import org.apache.maven.project.ProjectDependenciesResolver;
import org.eclipse.aether.RepositorySystem;
import org.eclipse.aether.artifact.Artifact;
import org.eclipse.aether.artifact.DefaultArtifact;
import org.eclipse.aether.graph.Dependency;
import org.eclipse.aether.resolution.ArtifactRequest;
import org.eclipse.aether.resolution.ArtifactResolutionException;
import org.eclipse.aether.resolution.ArtifactResult;

/**
 * Jars by a lock, as pip installs with --require-hashes: exactly those that are listed, each with its SHA-256.
 *
 * <p>A line of a lock is the hash, two spaces, and group:artifact:jar:version. Maven loads this class when
 * deploy/maven/jars calls it. The work is done before Maven would run the first plugin, and the projects have none.
 */
@Named
@Singleton
public final class Locked extends AbstractMavenLifecycleParticipant {
    private final RepositorySystem repositories;
    private final ProjectDependenciesResolver dependencies;

    @Inject
    Locked(RepositorySystem repositories, ProjectDependenciesResolver dependencies) {
        this.repositories = repositories;
        this.dependencies = dependencies;
    }

    @Override
    public void afterProjectsRead(MavenSession session) throws MavenExecutionException {
        Path lock = Path.of(session.getUserProperties().getProperty("trueup.lock"));
        String directory = session.getUserProperties().getProperty("trueup.directory");
        try {
            if (directory == null) {
                write(session, lock);
            } else {
                fetch(session, lock, Path.of(directory));
            }
        } catch (ArtifactResolutionException | DependencyResolutionException | IOException | IllegalStateException problem) {
            throw new MavenExecutionException(problem.getMessage(), session.getCurrentProject().getFile());
        }
    }

    /** Resolve what the project needs, and write the lock of it. */
    private void write(MavenSession session, Path lock) throws DependencyResolutionException, IOException {
        var request = new DefaultDependencyResolutionRequest(session.getCurrentProject(), session.getRepositorySession());
        Map<String, String> hashes = new TreeMap<>();
        for (Dependency each : dependencies.resolve(request).getResolvedDependencies()) {
            Artifact jar = each.getArtifact();
            hashes.put(jar.toString(), sha256(Files.readAllBytes(jar.getFile().toPath())));
        }
        List<String> lines = new ArrayList<>(List.of("# Written by `make lock`: the SHA-256 and the name of every jar."));
        hashes.forEach((jar, hash) -> lines.add(hash + "  " + jar));
        Files.write(lock, lines);
    }

    /** Fetch the jars of the lock; write them to the directory if all of them have their hashes, and none otherwise. */
    private void fetch(MavenSession session, Path lock, Path directory) throws ArtifactResolutionException, IOException {
        MavenProject project = session.getCurrentProject();
        Map<String, String> hashes = new TreeMap<>();
        List<ArtifactRequest> requests = new ArrayList<>();
        for (String line : Files.readAllLines(lock)) {
            if (!line.startsWith("#")) {
                String[] words = line.split("  ");
                hashes.put(words[1], words[0]);
                requests.add(new ArtifactRequest(new DefaultArtifact(words[1]), project.getRemoteProjectRepositories(), null));
            }
        }
        Map<Path, byte[]> jars = new TreeMap<>();
        for (ArtifactResult result : repositories.resolveArtifacts(session.getRepositorySession(), requests)) {
            Path file = result.getArtifact().getFile().toPath();
            byte[] content = Files.readAllBytes(file);
            String name = result.getArtifact().toString();
            String found = sha256(content);
            if (!found.equals(hashes.get(name))) {
                throw new IllegalStateException(name + " is not the jar of " + lock + ": SHA-256 " + found + ", " + file);
            }
            jars.put(directory.resolve(file.getFileName()), content);
        }
        Files.createDirectories(directory);
        for (Map.Entry<Path, byte[]> jar : jars.entrySet()) {
            Files.write(jar.getKey(), jar.getValue());
        }
    }

    private static String sha256(byte[] content) {
        try {
            return String.format("%064x", new BigInteger(1, MessageDigest.getInstance("SHA-256").digest(content)));
        } catch (NoSuchAlgorithmException problem) {
            throw new IllegalStateException(problem);
        }
    }
}
